package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

var dumpCommand = command{
	name:    "dump",
	args:    "FILE | DIR",
	minArgs: 1, maxArgs: 1,
	summary: "Explain a file of the data directory",
	help: "FILE is a log (.wal), an index (.idx) or one of the small sealed files (NODE, MANIFEST, TOPIC, .state); DIR lists what is in it. " +
		"Nothing is written and no lock is taken, so it may be used beside a running broker; the end of a log that grows may then look torn.\n" +
		"A log is shown frame by frame: position in the file, first offset, index, term, records, bytes, time, kind, and whether its check holds. " +
		"After damage the next frame that can follow is looked for. An entry of an index is compared with the frame that it points at.\n" +
		"Exit code 6 when something does not hold.",
	setup: func(fs *flag.FlagSet) runFunc {
		var o dumpOptions
		fs.BoolVar(&o.records, "records", false, "show keys, values and headers; of control records what they say")
		fs.BoolVar(&o.hex, "hex", false, "show the bytes of each frame, field by field (text only)")
		fs.Uint64Var(&o.at, "at", 0, "begin with the frame that holds `OFFSET`")
		fs.Int64Var(&o.most, "n", 0, "show `N` frames or entries at most; 0 = all")
		return func(ctx context.Context, c *call) error {
			if o.hex && c.output != outputText && c.output != "" {
				return usagef("dump: --hex goes with -o text only")
			}
			if o.most < 0 {
				return usagef("dump: -n %d: not a number of frames", o.most)
			}
			return dump(ctx, c, c.args[0], o)
		}
	},
}

// dumpOptions are the flags of dump.
type dumpOptions struct {
	records, hex bool
	at           uint64 // offset
	most         int64  // frames or entries; 0 = all
}

// dump finds out what name is and explains it.
func dump(ctx context.Context, c *call, name string, o dumpOptions) (err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(exitNotFound, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return dumpDir(ctx, c, name)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	head := make([]byte, 16)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch kindOfFile(name, head[:n]) {
	case fileLog:
		return dumpLog(ctx, c, f, info.Size(), o)
	case fileIndex:
		return dumpIndex(ctx, c, f, info.Size(), o)
	case fileSealed:
		return dumpSealed(c, f, info.Size())
	}
	return withCode(exitUsage, fmt.Errorf("%s is neither a log (.wal), an index (.idx) nor a sealed file", name))
}

// fileKind is a kind of file of the data directory.
type fileKind string

const (
	fileLog    fileKind = "log"
	fileIndex  fileKind = "index"
	fileSealed fileKind = "sealed"
	fileLock   fileKind = "lock"
	fileOther  fileKind = "other"
)

const (
	logSuffix   = ".wal"
	indexSuffix = ".idx"
	sealedMagic = "millrace "
)

// kindOfFile tells a kind by the name, or by the first bytes where the name says nothing.
func kindOfFile(name string, head []byte) fileKind {
	switch base := filepath.Base(name); {
	case filepath.Ext(base) == logSuffix:
		return fileLog
	case filepath.Ext(base) == indexSuffix:
		return fileIndex
	case bytes.HasPrefix(head, []byte(sealedMagic)):
		return fileSealed
	case base == "LOCK":
		return fileLock
	case bytes.HasPrefix(head, []byte(indexMagic)):
		return fileIndex
	case len(head) > 0 && head[0] == 0x01:
		return fileLog
	}
	return fileOther
}
