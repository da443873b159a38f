package storage

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/millrace-mq/millrace/storage/vfs"
)

// OpenLog opens the log in dir, made when it is missing, and recovers it if it was not closed
// in order.
//
// Recovery scans the last segment with full checks; those before it are durable and were
// complete when the manifest named them sealed. Let S be the highest index up to which any
// good frame says the log was settled. A bad spot above S was never acknowledged: a torn
// tail, copied to quarantine/ and cut. A bad spot at or below S is damage: it stays, readers
// are told, nothing behind it is touched. Recovering twice changes nothing.
//
// Errors: those of the disk, ErrNewer. A log of which something is missing opens read-only;
// the report says why.
func (s *Store) OpenLog(dir string, o LogOptions) (*Log, Report, error) {
	start := s.opts.Now()
	if err := makeDir(s.fs, dir); err != nil {
		return nil, Report{}, err
	}
	l := &Log{store: s, dir: dir, fs: folder{s.fs, dir}}
	l.SetOptions(o)
	l.term.Store(1)
	l.segments.Store(&[]*segment{})
	r := recovery{log: l}
	err := r.run()
	if err == nil {
		err = s.enter(l)
	}
	if err != nil {
		for _, seg := range *l.segments.Load() {
			err = errors.Join(err, seg.closeIfIdle())
		}
		return nil, r.report, fmt.Errorf("storage: open %s: %w", dir, err)
	}
	r.report.Epoch = l.epoch.Load()
	r.report.Elapsed = time.Duration(s.opts.Now() - start)
	return l, r.report, nil
}

// recovery is one opening of a log.
type recovery struct {
	log    *Log
	report Report
	files  map[string]int64 // of the directory, with sizes
	dirty  bool             // the manifest must be written
}

func (r *recovery) run() error {
	l := r.log
	list, err := l.fs.ReadDir(".")
	if err != nil {
		return err
	}
	r.files = make(map[string]int64, len(list))
	for _, e := range list {
		if !e.Dir {
			r.files[e.Name] = e.Size
		}
	}
	found, why, err := l.readManifest()
	if err != nil {
		return err
	}
	if why != "" {
		r.report.SetAside = append(r.report.SetAside, why)
	}
	r.dirty = !found || why != ""
	l.epoch.Store(l.manifest.Epoch)
	if err := r.load(); err != nil {
		return err
	}
	if err := r.tail(); err != nil {
		return err
	}
	if err := r.checkpoints(); err != nil {
		return err
	}
	if list := *l.segments.Load(); len(list) > 0 {
		l.start.Store(list[0].base)
	}
	if r.dirty {
		return l.writeManifest()
	}
	return nil
}

// readOnly notes the first reason why the log takes no appends.
func (r *recovery) readOnly(format string, args ...any) {
	if r.log.readOnly == "" {
		r.log.readOnly = fmt.Sprintf(format, args...)
		r.report.ReadOnly, r.report.Reason = true, r.log.readOnly
	}
}

// load makes the segment list of the manifest, adopts newer files, puts strangers aside.
func (r *recovery) load() error {
	l := r.log
	var list []*segment
	for _, e := range l.manifest.Segments {
		s := &segment{log: l, id: e.ID, base: e.Base, firstIndex: e.FirstIndex, firstTS: e.FirstTS}
		if e.Sealed {
			s.sealed.Store(&sealedEnd{End: End{e.EndOffset, e.EndIndex}, size: e.Size, firstTS: e.FirstTS, lastTS: e.LastTS})
		}
		size, ok := r.files[s.walName()]
		switch {
		case !ok && e.Sealed:
			r.readOnly("segment %s, offsets [%d, %d), is missing", s.walName(), e.Base, e.EndOffset)
			r.damage(s, Damage{Segment: e.ID, EndPos: e.Size, From: e.Base, To: e.EndOffset, Kind: "file is missing"})
		case !ok:
			r.readOnly("segment %s is missing", s.walName())
			continue
		case e.Sealed && size < e.Size:
			if err := r.shortened(s, size); err != nil {
				return err
			}
		}
		list = append(list, s)
	}
	for _, d := range l.manifest.Damage {
		if i := slices.IndexFunc(list, func(s *segment) bool { return s.id == d.Segment }); i >= 0 {
			r.damage(list[i], d)
		}
	}
	l.segments.Store(&list)
	return r.strangers()
}

// damage adds d to what is known of s and to the report.
func (r *recovery) damage(s *segment, d Damage) {
	if slices.Contains(s.damaged(), d) {
		return
	}
	all := append(slices.Clone(s.damaged()), d)
	slices.SortFunc(all, func(a, b Damage) int { return int(a.Pos - b.Pos) })
	s.damage.Store(&all)
	r.report.Damage = append(r.report.Damage, d)
}

// shortened finds what is left of a sealed segment whose file is shorter than it was.
func (r *recovery) shortened(s *segment, size int64) (err error) {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sc := newScan(f, size, s.base, s.firstIndex)
	if err := sc.run(); err != nil {
		return err
	}
	end := s.sealed.Load()
	pos := sc.last.pos
	if len(sc.holes) > 0 && !sc.holes[len(sc.holes)-1].tail {
		pos = sc.pos
	}
	r.damage(s, Damage{Segment: s.id, Pos: pos, EndPos: end.size, From: sc.last.Offset, To: end.Offset,
		Kind: fmt.Sprintf("file has %d bytes of %d", size, end.size)})
	r.dirty = true
	return nil
}

// strangers looks at the log files that the manifest does not name. One with an id that the
// manifest had not given yet is newer than the manifest: it is adopted if it follows. Any
// other is what a removal or rewrite left behind: it is put aside, never deleted.
func (r *recovery) strangers() error {
	l := r.log
	named := map[string]bool{}
	for _, s := range *l.segments.Load() {
		named[s.walName()] = true
	}
	type file struct {
		base, id uint64
		name     string
	}
	var newer, old []file
	for name := range r.files {
		base, id, ok := parseStem(name, walSuffix)
		if !ok || named[name] {
			continue
		}
		if id >= l.manifest.NextSegment {
			newer = append(newer, file{base, id, name})
		} else {
			old = append(old, file{base, id, name})
		}
	}
	slices.SortFunc(newer, func(a, b file) int { return int(a.id) - int(b.id) })
	slices.SortFunc(old, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range newer {
		l.manifest.NextSegment = max(l.manifest.NextSegment, f.id+1)
		l.manifest.Closed = nil
		r.dirty = true
		ok, err := r.adopt(f.base, f.id)
		if err != nil {
			return err
		}
		if !ok {
			old = append(old, f)
		}
	}
	for _, f := range old {
		if err := r.putAside(f.name); err != nil {
			return err
		}
	}
	return nil
}

// adopt appends the file to the segment list if its frames follow what is there. The segment
// that was last is sealed at its last good frame.
func (r *recovery) adopt(base, id uint64) (bool, error) {
	l := r.log
	list := *l.segments.Load()
	s := &segment{log: l, id: id, base: base, firstIndex: 1}
	f, err := l.fs.Open(s.walName())
	if err != nil {
		return false, err
	}
	size := r.files[s.walName()]
	head := newScan(f, size, base, 1)
	frame, _, err := head.frameAt(0)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	if frame != nil {
		if frame.Header().Offset() != base {
			return false, nil
		}
		s.firstIndex = frame.Index()
	}
	if n := len(list); n > 0 {
		last := list[n-1]
		if last.sealed.Load() == nil {
			if err := r.sealAt(last, base, s.firstIndex, frame != nil); err != nil {
				return false, err
			}
		}
		end := last.sealed.Load()
		if frame == nil {
			s.firstIndex = end.Index + 1
		}
		if end.Offset != base || end.Index+1 != s.firstIndex {
			r.readOnly("%s does not follow %s, which ends at offset %d, index %d", s.walName(), last.walName(), end.Offset, end.Index)
			return false, nil
		}
	} else if frame == nil && base > 0 {
		return false, nil
	}
	list = append(list[:len(list):len(list)], s)
	l.segments.Store(&list)
	return true, nil
}

// sealAt scans a segment that a newer file follows and seals it where its frames end.
func (r *recovery) sealAt(s *segment, offset, index uint64, known bool) error {
	sc, err := r.scanSegment(s)
	if err != nil {
		return err
	}
	end := sealedEnd{End: sc.last.End, size: sc.last.pos, firstTS: sc.first, lastTS: sc.last.ts}
	for _, h := range sc.holes {
		d := Damage{Segment: s.id, Pos: h.pos, EndPos: h.end, From: h.before.Offset, To: offset, Kind: h.why.Error()}
		if h.tail && known { // a later segment has frames, so these were durable
			end.Offset, end.Index, end.size = offset, index-1, h.end
		} else if h.tail {
			continue
		} else {
			d.To = r.offsetAt(s, h.end, offset)
		}
		r.damage(s, d)
	}
	s.sealed.Store(&end)
	r.dirty = true
	return nil
}

// offsetAt is the base offset of the good frame at pos.
func (r *recovery) offsetAt(s *segment, pos int64, otherwise uint64) uint64 {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return otherwise
	}
	sc := newScan(f, r.files[s.walName()], s.base, s.firstIndex)
	frame, _, err := sc.frameAt(pos)
	if err == nil && frame != nil {
		otherwise = frame.Header().Offset()
	}
	r.log.store.noteError(f.Close())
	return otherwise
}

// putAside moves a file, and its index if it has one, into quarantine/.
func (r *recovery) putAside(name string) error {
	if err := makeDir(r.log.fs, quarantineDir); err != nil {
		return err
	}
	if err := r.log.fs.Rename(name, path.Join(quarantineDir, name)); err != nil {
		return err
	}
	delete(r.files, name)
	r.report.SetAside = append(r.report.SetAside, name)
	if idx := strings.TrimSuffix(name, walSuffix) + idxSuffix; idx != name {
		if err := ignoreMissing(r.log.fs.Remove(idx)); err != nil { // derived
			return err
		}
	}
	return errors.Join(r.log.fs.SyncDir(quarantineDir), r.log.fs.SyncDir("."))
}

// scanSegment scans a segment and rebuilds its index from what it finds.
func (r *recovery) scanSegment(s *segment) (sc *scan, err error) {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.DropCache(); err != nil { // judge the disk, not what the cache pretends
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if err := f.ReadAhead(0, size); err != nil {
		return nil, err
	}
	sc = newScan(f, size, s.base, s.firstIndex)
	b, err := newIndexBuilder(s)
	if err != nil {
		return nil, err
	}
	sc.entries = b.frame
	err = errors.Join(sc.run(), b.close())
	r.report.ScannedBytes += sc.pos
	r.report.ScannedFrames += sc.frames
	r.report.IndexRebuilt++
	return sc, err
}

// tail finds the end of the log: in the last segment, or behind the last sealed one.
func (r *recovery) tail() error {
	l := r.log
	list := *l.segments.Load()
	if len(list) == 0 {
		r.report.Clean = true
		return nil
	}
	s := list[len(list)-1]
	if end := s.sealed.Load(); end != nil {
		l.written = mark{End: end.End, seg: s, pos: end.size, ts: end.lastTS}
		l.synced = l.written
		return nil
	}
	if c := l.manifest.Closed; c != nil && r.files[s.walName()] >= c.Size {
		s.firstTS = c.FirstTS
		l.written = mark{End: End{c.Offset, c.Index}, seg: s, pos: c.Size, ts: c.LastTS}
		l.synced = l.written
		s.zero.end = c.Size
		r.report.Clean = true
		return nil
	}
	return r.scanTail(s)
}

// scanTail recovers the active segment.
func (r *recovery) scanTail(s *segment) error {
	l := r.log
	sc, err := r.scanSegment(s)
	if err != nil {
		return err
	}
	settled := max(sc.settled, s.firstIndex-1)
	if l.manifest.Closed != nil { // shorter than when it was closed
		settled = max(settled, l.manifest.Closed.Index)
	}
	keep := mark{End: End{s.base, s.firstIndex - 1}}
	if sc.frames > 0 {
		keep = sc.last
	}
	for i, h := range sc.holes {
		if h.before.Index+1 > settled {
			if err := r.cutTail(s, sc, h); err != nil {
				return err
			}
			keep = mark{End: h.before, pos: h.pos, ts: r.timeBefore(s, h)}
			break
		}
		d := Damage{Segment: s.id, Pos: h.pos, EndPos: h.end, From: h.before.Offset, Kind: h.why.Error()}
		if h.tail {
			r.readOnly("frames up to index %d were settled, those behind index %d cannot be read", settled, h.before.Index)
			d.To = h.before.Offset + 1
			keep = mark{End: h.before, pos: h.pos, ts: sc.last.ts}
		} else {
			d.To = r.offsetAt(s, sc.holes[i].end, h.before.Offset)
		}
		r.damage(s, d)
		r.dirty = true
	}
	if keep.Index < settled {
		r.readOnly("frames up to index %d were settled, the log ends at index %d", settled, keep.Index)
	}
	if !l.durable.Load() || r.report.TornFrames > 0 {
		l.epoch.Add(1)
		r.report.LostSuffix, r.dirty = true, true
	}
	return r.settle(s, sc, keep)
}

// settle makes the recovered tail durable and publishes it as both ends.
func (r *recovery) settle(s *segment, sc *scan, keep mark) (err error) {
	l := r.log
	f, err := l.fs.OpenWrite(s.walName())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if r.report.TornBytes > 0 {
		if err := f.Truncate(keep.pos); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	keep.seg = s
	s.firstTS = sc.first
	s.zero.end = size
	l.written, l.synced = keep, keep
	l.manifest.Closed = nil
	r.dirty = true
	return nil
}

// cutTail copies what lies from the hole to the last byte that is not zero into quarantine/;
// settle truncates there. Frames behind the hole go too: they were never settled.
func (r *recovery) cutTail(s *segment, sc *scan, h hole) (err error) {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := h.end
	if !h.tail {
		end = sc.pos
		if n := len(sc.holes); sc.holes[n-1].tail {
			end = sc.holes[n-1].end
		}
		r.report.TornFrames = int64(sc.last.Index - h.before.Index)
	}
	r.report.TornBytes = end - h.pos
	if err := makeDir(r.log.fs, quarantineDir); err != nil {
		return err
	}
	name := path.Join(quarantineDir, fmt.Sprintf("%s.%d.torn", s.walName(), h.pos))
	if err := ignoreMissing(r.log.fs.Remove(name)); err != nil { // of a recovery that did not finish
		return err
	}
	if err := copyRange(r.log.fs, f, h.pos, end-h.pos, name); err != nil {
		return err
	}
	if err := errors.Join(r.log.fs.SyncDir(quarantineDir), r.log.fs.SyncDir(".")); err != nil {
		return err
	}
	return r.cutIndex(s, h.pos)
}

// cutIndex drops the entries of the rebuilt index from pos on.
func (r *recovery) cutIndex(s *segment, pos int64) error {
	x, err := openIndex(r.log.fs, s.idxName(), s.id, s.base, s.firstIndex, r.files[s.walName()], true)
	if err != nil {
		return err
	}
	at := -1
	if pos > 0 {
		_, at, err = x.floor(byPos, uint64(pos-1))
	}
	return errors.Join(err, x.cut(at+1), x.close())
}

// timeBefore is the append time of the last good frame in front of a hole.
func (r *recovery) timeBefore(s *segment, h hole) uint64 {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return uint64(r.log.store.opts.Now())
	}
	sc := newScan(f, h.pos, s.base, s.firstIndex)
	err = errors.Join(sc.run(), f.Close())
	r.log.store.noteError(err)
	return sc.last.ts
}

// copyRange copies n bytes of f into a new file, durably but for its name.
func copyRange(fsys vfs.FS, f vfs.File, pos, n int64, name string) error {
	to, err := fsys.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, min(n, scanBytes))
	for done := int64(0); done < n && err == nil; {
		var m int
		m, err = f.ReadAt(buf[:min(int64(len(buf)), n-done)], pos+done)
		if m > 0 {
			_, err = to.WriteAt(buf[:m], done)
			done += int64(m)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}
