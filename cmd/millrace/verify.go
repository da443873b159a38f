package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

var verifyCommand = command{
	name:    "verify",
	args:    "DIR",
	minArgs: 1, maxArgs: 1,
	summary: "Check every byte of a data directory",
	help: "DIR is a data directory, or one topic or partition in it. Every frame's check, the order of frames, manifests, indexes and checkpoints " +
		"are compared; nothing is changed. A data directory that a broker holds is refused.\n" +
		"With -o json: {\"ok\",\"partitions\",\"segments\",\"frames\",\"records\",\"bytes\",\"damage\":[{\"file\",\"pos\",\"from\",\"to\",\"kind\"}],\"notes\":[]}; " +
		"from and to are the offsets [from, to) that cannot be read, to = from where the end is not known. Notes are what the next start puts right.\n" +
		"Exit code 6 when there is damage.",
	setup: func(*flag.FlagSet) runFunc {
		return func(ctx context.Context, c *call) error { return verify(ctx, c, c.args[0]) }
	},
}

// verifyFacts is what "verify" found.
type verifyFacts struct {
	OK         bool          `json:"ok"`
	Partitions int           `json:"partitions"`
	Segments   int           `json:"segments"`
	Frames     int64         `json:"frames"`
	Records    int64         `json:"records"`
	Bytes      int64         `json:"bytes"`
	Damage     []damageFacts `json:"damage"`
	Notes      []string      `json:"notes"`
}

// damageFacts is one damaged place.
type damageFacts struct {
	File string `json:"file"` // below the directory
	Pos  int64  `json:"pos"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	Kind string `json:"kind"`
}

func verify(ctx context.Context, c *call, dir string) (err error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(exitNotFound, err)
	}
	if err == nil && !info.IsDir() {
		err = usagef("verify: %s is not a directory", dir)
	}
	if err != nil {
		return err
	}
	tree, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	lock, err := holdDataDir(c, tree)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if lock != nil {
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	facts, err := verifyTree(ctx, c, tree)
	if err != nil {
		return err
	}
	if err := c.object(facts, facts.print); err != nil {
		return err
	}
	if !facts.OK {
		return withCode(exitDamage, nil)
	}
	return nil
}

// holdDataDir keeps brokers away from a data directory while it is checked. A
// directory without a lock file is a part of one.
func holdDataDir(c *call, tree vfs.FS) (io.Closer, error) {
	if _, err := tree.Stat("LOCK"); err != nil {
		return nil, nil // a topic, a partition, or a copy without its lock
	}
	lock, err := tree.Lock("LOCK", fmt.Sprintf("millrace verify, pid %d", os.Getpid()))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("a broker has it, stop it first: %w", err)
	}
	if err != nil { // on a read-only copy, for instance
		c.notice("without a lock (%v): start no broker here meanwhile", err)
		return nil, nil
	}
	return lock, nil
}

// checklist is what there is to check in a tree.
type checklist struct {
	partitions []string
	sealed     []string // NODE and TOPIC files
	bytes      int64    // of logs
}

func verifyTree(ctx context.Context, c *call, tree vfs.FS) (verifyFacts, error) {
	facts := verifyFacts{Damage: []damageFacts{}, Notes: []string{}}
	var list checklist
	if err := list.walk(ctx, tree, "."); err != nil {
		return facts, err
	}
	if len(list.partitions)+len(list.sealed) == 0 {
		return facts, withCode(exitNotFound, errors.New("no data directory, topic or partition: there is no MANIFEST, TOPIC or NODE in it"))
	}
	for _, name := range list.sealed {
		if err := facts.checkSealed(tree, name); err != nil {
			return facts, err
		}
	}
	p := c.startProgress("verify", "bytes", list.bytes)
	defer p.finish()
	for _, dir := range list.partitions {
		if err := ctx.Err(); err != nil {
			return facts, err
		}
		r, err := storage.Check(tree, dir, p.add)
		if err != nil {
			return facts, fmt.Errorf("%s: %w", dir, err)
		}
		facts.add(dir, &r)
	}
	facts.OK = len(facts.Damage) == 0
	return facts, nil
}

// walk looks for partitions: directories with a MANIFEST or with logs.
func (l *checklist) walk(ctx context.Context, tree vfs.FS, dir string) error {
	entries, err := tree.ReadDir(dir)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	partition := false
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		switch {
		case e.Dir && e.Name != "quarantine":
			if err := l.walk(ctx, tree, name); err != nil {
				return err
			}
		case e.Name == "NODE", e.Name == "TOPIC":
			l.sealed = append(l.sealed, name)
		case e.Name == "MANIFEST", e.Name == "MANIFEST.prev":
			partition = true
		case path.Ext(e.Name) == logSuffix:
			partition = true
			l.bytes += e.Size
		}
	}
	if partition {
		l.partitions = append(l.partitions, dir)
	}
	return nil
}

// checkSealed reads a sealed file as a broker does.
func (f *verifyFacts) checkSealed(tree vfs.FS, name string) error {
	kind := map[string]string{"NODE": "node", "TOPIC": "topic"}[path.Base(name)]
	_, _, err := storage.ReadSealed(tree, name, kind, storage.Version)
	var damaged *storage.SealedError
	if errors.As(err, &damaged) && !errors.Is(err, storage.ErrNewer) {
		f.Damage = append(f.Damage, damageFacts{File: name, Kind: damaged.Err.Error()})
		return nil
	}
	return err
}

func (f *verifyFacts) add(dir string, r *storage.CheckReport) {
	f.Partitions++
	f.Segments += r.Segments
	f.Frames += r.Frames
	f.Records += r.Records
	f.Bytes += r.Bytes
	for _, d := range r.Damage {
		f.Damage = append(f.Damage, damageFacts(d))
	}
	for _, note := range r.Notes {
		f.Notes = append(f.Notes, dir+": "+note)
	}
}

func (f verifyFacts) print(w io.Writer) {
	for _, note := range f.Notes {
		fmt.Fprintf(w, "note    %s\n", printable(note))
	}
	for _, d := range f.Damage {
		fmt.Fprintf(w, "DAMAGE  %s at %d, offsets [%d, %d): %s\n", printable(d.File), d.Pos, d.From, d.To, printable(d.Kind))
	}
	verdict := "ok"
	if !f.OK {
		verdict = fmt.Sprintf("DAMAGED in %s", plural(len(f.Damage), "place"))
	}
	fmt.Fprintf(w, "%s: %s, %s, %s, %s, %s\n", verdict, plural(f.Partitions, "partition"), plural(f.Segments, "segment"),
		plural(int(f.Frames), "frame"), plural(int(f.Records), "record"), humanSize(f.Bytes))
}
