package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// Report is what Verify found.
type Report struct {
	OK         bool     `json:"ok"` // no damage
	Partitions int      `json:"partitions"`
	Segments   int      `json:"segments"`
	Frames     int64    `json:"frames"`
	Records    int64    `json:"records"`
	Bytes      int64    `json:"bytes"` // of logs
	Damage     []Damage `json:"damage"`
	Notes      []string `json:"notes"` // what the next start puts right
}

// Damage is one damaged place: the offsets [From, To) cannot be read; To = From
// where the end is not known.
type Damage struct {
	File string `json:"file"` // below the directory
	Pos  int64  `json:"pos"`  // in the file
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	Kind string `json:"kind"`
}

// Verify checks everything in a data directory, a topic or a partition. It
// changes nothing, keeps brokers away meanwhile, and reports progress.
//
// Errors: a directory that is not there or is none, with their exit codes; one
// that a broker holds. Damage is no error: the report has it.
func Verify(ctx context.Context, c *cli.Call, dir string) (facts Report, err error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return facts, cli.WithCode(cli.ExitNotFound, err)
	}
	if err == nil && !info.IsDir() {
		err = cli.Usagef("verify: %s is not a directory", dir)
	}
	if err != nil {
		return facts, err
	}
	tree, err := vfs.OS(dir)
	if err != nil {
		return facts, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	lock, err := holdDataDir(c, tree)
	if err != nil {
		return facts, fmt.Errorf("%s: %w", dir, err)
	}
	if lock != nil {
		defer func() { err = errors.Join(err, lock.Close()) }()
	}
	return verifyTree(ctx, c, tree)
}

// holdDataDir keeps brokers away from a data directory while it is checked. A
// directory without a lock file is a part of one.
func holdDataDir(c *cli.Call, tree vfs.FS) (io.Closer, error) {
	if _, err := tree.Stat("LOCK"); err != nil {
		return nil, nil // a topic, a partition, or a copy without its lock
	}
	lock, err := tree.Lock("LOCK", fmt.Sprintf("millrace verify, pid %d", os.Getpid()))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("a broker has it, stop it first: %w", err)
	}
	if err != nil { // on a read-only copy, for instance
		c.Notice("without a lock (%v): start no broker here meanwhile", err)
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

func verifyTree(ctx context.Context, c *cli.Call, tree vfs.FS) (Report, error) {
	facts := Report{Damage: []Damage{}, Notes: []string{}}
	var list checklist
	if err := list.walk(ctx, tree, "."); err != nil {
		return facts, err
	}
	if len(list.partitions)+len(list.sealed) == 0 {
		return facts, cli.WithCode(cli.ExitNotFound, errors.New("no data directory, topic or partition: there is no MANIFEST, TOPIC or NODE in it"))
	}
	for _, name := range list.sealed {
		if err := facts.checkSealed(tree, name); err != nil {
			return facts, err
		}
	}
	p := c.StartProgress("verify", "bytes", list.bytes)
	defer p.Finish()
	for _, dir := range list.partitions {
		if err := ctx.Err(); err != nil {
			return facts, err
		}
		r, err := storage.Check(tree, dir, p.Add)
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
func (f *Report) checkSealed(tree vfs.FS, name string) error {
	kind := map[string]string{"NODE": "node", "TOPIC": "topic"}[path.Base(name)]
	_, _, err := storage.ReadSealed(tree, name, kind, storage.Version)
	var damaged *storage.SealedError
	if errors.As(err, &damaged) && !errors.Is(err, storage.ErrNewer) {
		f.Damage = append(f.Damage, Damage{File: name, Kind: damaged.Err.Error()})
		return nil
	}
	return err
}

func (f *Report) add(dir string, r *storage.CheckReport) {
	f.Partitions++
	f.Segments += r.Segments
	f.Frames += r.Frames
	f.Records += r.Records
	f.Bytes += r.Bytes
	for _, d := range r.Damage {
		f.Damage = append(f.Damage, Damage(d))
	}
	for _, note := range r.Notes {
		f.Notes = append(f.Notes, dir+": "+note)
	}
}

// Print writes the report for people.
func (f Report) Print(w io.Writer) {
	for _, note := range f.Notes {
		fmt.Fprintf(w, "note    %s\n", cli.Printable(note))
	}
	for _, d := range f.Damage {
		place := ""
		if path.Ext(d.File) == logSuffix { // other files have no offsets
			place = fmt.Sprintf(" at %d, offsets [%d, %d)", d.Pos, d.From, d.To)
			if d.To <= d.From {
				place = fmt.Sprintf(" at %d, from offset %d on", d.Pos, d.From)
			}
		}
		fmt.Fprintf(w, "DAMAGE  %s%s: %s\n", cli.Printable(d.File), place, cli.Printable(d.Kind))
	}
	verdict := "ok"
	if !f.OK {
		verdict = fmt.Sprintf("DAMAGED in %s", cli.Plural(len(f.Damage), "place"))
	}
	fmt.Fprintf(w, "%s: %s, %s, %s, %s, %s\n", verdict, cli.Plural(f.Partitions, "partition"), cli.Plural(f.Segments, "segment"),
		cli.Plural(int(f.Frames), "frame"), cli.Plural(int(f.Records), "record"), cli.HumanSize(f.Bytes))
}
