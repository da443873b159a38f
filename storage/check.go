package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// CheckReport is what Check found in one log.
type CheckReport struct {
	Segments int
	Frames   int64
	Records  int64
	Bytes    int64
	Damage   []CheckDamage
	Notes    []string // odd but harmless: what a start will put right by itself
}

// CheckDamage is one damaged place.
type CheckDamage struct {
	File string // below the store's directory
	Pos  int64
	From uint64 // first offset that cannot be read
	To   uint64 // first offset behind; From when it is not known
	Kind string
}

// OK tells that nothing is damaged.
func (r *CheckReport) OK() bool { return len(r.Damage) == 0 }

func (r *CheckReport) damaged(file string, pos int64, from, to uint64, kind string) {
	r.Damage = append(r.Damage, CheckDamage{file, pos, from, max(from, to), kind})
}

// Check reads every frame of the log in dir and compares checks, order, manifest, indexes and
// checkpoints. It changes nothing and needs no store; beside a running broker the end of the
// last segment may be in motion, which is a note and not damage.
//
// Errors: those of the disk; damage is in the report.
func Check(fsys vfs.FS, dir string, progress func(bytes int64)) (CheckReport, error) {
	if progress == nil {
		progress = func(int64) {}
	}
	c := checker{fs: folder{fsys, dir}, dir: dir, progress: progress}
	body, _, err := ReadSealed(c.fs, manifestName, "manifest", Version)
	if err == nil {
		err = c.m.decode(body)
	}
	var damaged *SealedError
	if errors.As(err, &damaged) && !errors.Is(err, ErrNewer) {
		c.r.damaged(path.Join(dir, manifestName), 0, 0, 0, damaged.Err.Error())
		return c.r, nil
	}
	if err != nil {
		return c.r, err
	}
	for i := range c.m.Segments {
		if err := c.segment(&c.m.Segments[i]); err != nil {
			return c.r, err
		}
	}
	return c.r, c.strangers()
}

type checker struct {
	fs       vfs.FS
	dir      string
	m        manifest
	r        CheckReport
	progress func(int64)
}

// segment scans one segment.
func (c *checker) segment(e *segmentEntry) (err error) {
	name := stem(e.Base, e.ID) + walSuffix
	c.r.Segments++
	f, err := c.fs.Open(name)
	if err != nil {
		if _, serr := c.fs.Stat(name); serr != nil {
			c.r.damaged(path.Join(c.dir, name), 0, e.Base, e.EndOffset, "file is missing")
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return err
	}
	limit := size
	switch {
	case e.Sealed:
		limit = min(size, e.Size)
	case c.m.Closed != nil:
		limit = min(size, c.m.Closed.Size)
	}
	sc := newScan(f, limit, e.Base, e.FirstIndex)
	b, err := newIndexBuilder(&segment{id: e.ID, base: e.Base, firstIndex: e.FirstIndex})
	if err != nil {
		return err
	}
	seen := int64(0)
	sc.entries = func(at entry, control bool) error {
		if at.pos-seen >= scanBytes {
			c.progress(at.pos - seen)
			seen = at.pos
		}
		return b.frame(at, control)
	}
	if err := sc.run(); err != nil {
		return err
	}
	c.progress(limit - seen)
	c.r.Frames += sc.frames
	c.r.Bytes += sc.last.pos
	c.r.Records += int64(sc.last.Offset - e.Base)
	c.holes(e, name, sc)
	c.end(e, name, size, sc)
	return c.index(e, b)
}

// holes turns what the scan could not read into damage or, at a tail that was never settled,
// into a note.
func (c *checker) holes(e *segmentEntry, name string, sc *scan) {
	settled := max(sc.settled, e.FirstIndex-1)
	if e.Sealed {
		settled = e.EndIndex
	} else if c.m.Closed != nil {
		settled = c.m.Closed.Index
	}
	for _, h := range sc.holes {
		if h.before.Index+1 > settled {
			c.r.Notes = append(c.r.Notes, fmt.Sprintf("%s: %d bytes at %d behind the last settled frame: a torn tail, or an append under way", name, h.end-h.pos, h.pos))
			return
		}
		to := h.next
		if h.tail {
			to = e.EndOffset
		}
		c.r.damaged(path.Join(c.dir, name), h.pos, h.before.Offset, to, h.why.Error())
	}
}

// end compares where the scan ended with what the manifest says.
func (c *checker) end(e *segmentEntry, name string, size int64, sc *scan) {
	want, index := e.Size, e.EndIndex
	switch {
	case e.Sealed:
	case c.m.Closed != nil:
		want, index = c.m.Closed.Size, c.m.Closed.Index
	default:
		return
	}
	if size < want {
		c.r.damaged(path.Join(c.dir, name), sc.last.pos, sc.last.Offset, e.EndOffset, fmt.Sprintf("file has %d bytes of %d", size, want))
	} else if sc.last.Index != index && (len(sc.holes) == 0 || !sc.holes[len(sc.holes)-1].tail) {
		c.r.damaged(path.Join(c.dir, name), sc.last.pos, sc.last.Offset, e.EndOffset, fmt.Sprintf("ends at index %d, the manifest says %d", sc.last.Index, index))
	}
}

// index compares the index file with one made from the scan. A start rebuilds an odd one, so
// it is a note.
func (c *checker) index(e *segmentEntry, b *indexBuilder) error {
	name := stem(e.Base, e.ID) + idxSuffix
	got, err := readFile(c.fs, name)
	if err != nil {
		c.r.Notes = append(c.r.Notes, fmt.Sprintf("%s: %v", name, err))
		return nil
	}
	want := (*b.x.view.Load())[:indexSize(int(b.x.count.Load()))]
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		c.r.Notes = append(c.r.Notes, name+": does not agree with its log; it is rebuilt when it is opened")
	}
	return nil
}

// strangers notes files that no manifest names and checks checkpoints.
func (c *checker) strangers() error {
	list, err := c.fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, f := range list {
		if base, id, ok := parseStem(f.Name, walSuffix); ok {
			if !slices.ContainsFunc(c.m.Segments, func(e segmentEntry) bool { return e.Base == base && e.ID == id }) {
				c.r.Notes = append(c.r.Notes, f.Name+": no manifest names it; a start adopts it or puts it aside")
			}
		}
		if path.Ext(f.Name) == stateSuffix {
			if _, _, err := readSealed(c.fs, f.Name, "state", Version); err != nil {
				c.r.Notes = append(c.r.Notes, err.Error())
			}
		}
		if f.Name == quarantineDir {
			c.r.Notes = append(c.r.Notes, "quarantine/ holds what was put aside")
		}
	}
	return nil
}
