package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// Options say what Dump shows.
type Options struct {
	Records bool   // keys, values and headers; of control records what they say
	Hex     bool   // the bytes of each frame, field by field; text output only
	At      uint64 // begin with the frame that holds this offset
	Most    int64  // frames or entries; 0 = all
}

// Dump finds out what name is, a log, an index, a sealed file or a directory of
// them, and prints what is in it. No lock is taken.
//
// Errors: a file that is missing, unknown or damaged, with their exit codes; those
// of reading and printing.
func Dump(ctx context.Context, c *cli.Call, name string, o Options) (err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.WithCode(cli.ExitNotFound, err)
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
	return cli.WithCode(cli.ExitUsage, fmt.Errorf("%s is neither a log (.wal), an index (.idx) nor a sealed file", name))
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
