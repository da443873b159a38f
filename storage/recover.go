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

	checkpoint uint64 // index that a readable checkpoint shows to have been durable
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
	r.checkpoint = r.newestCheckpoint()
	if err := r.tail(); err != nil {
		return err
	}
	if r.checkpoint > l.written.Index {
		r.readOnly("a checkpoint shows that index %d was durable, the log ends at %d", r.checkpoint, l.written.Index)
	}
	if list := *l.segments.Load(); len(list) > 0 {
		l.start.Store(list[0].base)
	}
	if !r.dirty || l.readOnly != "" { // the next start must find what this one found
		return nil
	}
	return r.tolerate(l.writeManifest())
}

// tolerate lets a log open on a full disk: what could not be written is found again by the next
// start, and the first append writes it.
func (r *recovery) tolerate(err error) error {
	if !vfs.NoSpace(err) {
		return err
	}
	r.log.store.noteError(fmt.Errorf("storage: %s is opened without writing what was found: %w", r.log.dir, err))
	r.log.unwritten = true
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

// forget drops what earlier lives noted of s.
func (r *recovery) forget(s *segment) {
	s.damage.Store(nil)
	r.report.Damage = slices.DeleteFunc(r.report.Damage, func(d Damage) bool { return d.Segment == s.id })
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
	if l.readOnly != "" { // nothing is moved: the next start must find what this one found
		return nil
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
			if last.firstIndex == end.Index+1 { // two empty ones: steps that failed left them
				last.sealed.Store(nil)
				return false, nil
			}
			s.firstIndex = end.Index + 1
		}
		if end.Offset != base || end.Index+1 != s.firstIndex {
			r.readOnly("%s does not follow %s, which ends at offset %d, index %d", s.walName(), last.walName(), end.Offset, end.Index)
			return false, nil
		}
	} else if frame == nil && size > 0 || base > 0 && frame == nil {
		r.readOnly("%s begins with damage, and no manifest says where it belongs", s.walName())
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
		d := Damage{Segment: s.id, Pos: h.pos, EndPos: h.end, From: h.before.Offset, To: h.next, Kind: h.why.Error()}
		if h.tail && known { // a later segment has frames, so these were durable
			end.Offset, end.Index, end.size = offset, index-1, h.end
			d.To = offset
		} else if h.tail {
			continue
		}
		r.damage(s, d)
	}
	s.sealed.Store(&end)
	r.dirty = true
	return nil
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
	err = sc.run()
	if ierr := b.close(); ierr != nil { // derived: the first reader builds it, in memory if need be
		r.log.store.noteError(ierr)
	}
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
	if c := l.manifest.Closed; c != nil && r.files[s.walName()] == c.Size { // larger: it was appended to since
		s.firstTS = c.FirstTS
		l.written = mark{End: End{c.Offset, c.Index}, seg: s, pos: c.Size, ts: c.LastTS}
		l.synced = l.written
		s.zero.end = c.Size
		r.report.Clean = true
		return nil
	}
	return r.scanTail(s)
}

// scanTail recovers the active segment. It looks first and changes the file afterwards, and only
// when the log can go on: a log that is read-only is left as it was found.
func (r *recovery) scanTail(s *segment) error {
	l := r.log
	sc, err := r.scanSegment(s)
	if err != nil {
		return err
	}
	r.forget(s) // the scan knows better
	settled := max(sc.settled, s.firstIndex-1, r.checkpoint)
	if c := l.manifest.Closed; c != nil && r.files[s.walName()] < c.Size {
		settled = max(settled, c.Index)
	}
	keep, torn := r.judge(s, sc, settled)
	if sc.gaveUp || torn != nil && sc.claims > torn.before.Index {
		r.readOnly("%s has damage behind %d, and whether what follows it is of the log cannot be told", s.walName(), keep.pos)
	}
	if keep.Index < settled {
		r.readOnly("frames up to index %d were settled, the log ends at index %d", settled, keep.Index)
	}
	keep.seg = s
	s.firstTS = sc.first
	l.written, l.synced = keep, keep
	if l.readOnly != "" {
		return nil
	}
	if torn != nil {
		err := r.cutTail(s, sc, *torn)
		if vfs.NoSpace(err) {
			r.readOnly("the disk is full: %d bytes behind the last good frame cannot be put aside", r.report.TornBytes)
			r.report.TornBytes, r.report.TornFrames = 0, 0
			return nil
		}
		if err != nil {
			return err
		}
	}
	if !l.durable.Load() || torn != nil {
		l.epoch.Add(1)
		r.report.LostSuffix, r.dirty = true, true
	}
	return r.settle(s, keep)
}

// judge decides what the holes of the scan are. The first one above the settled index is a torn
// tail, and everything behind it goes with it; those before are damage.
func (r *recovery) judge(s *segment, sc *scan, settled uint64) (keep mark, torn *hole) {
	keep = mark{End: End{s.base, s.firstIndex - 1}}
	if sc.frames > 0 {
		keep = sc.last
	}
	for i := range sc.holes {
		h := &sc.holes[i]
		if h.before.Index+1 > settled {
			return mark{End: h.before.End, pos: h.pos, ts: h.before.ts}, h
		}
		d := Damage{Segment: s.id, Pos: h.pos, EndPos: h.end, From: h.before.Offset, To: h.next, Kind: h.why.Error()}
		if h.tail {
			r.readOnly("frames up to index %d were settled, those behind index %d cannot be read", settled, h.before.Index)
			d.To = h.before.Offset + 1
			keep = mark{End: h.before.End, pos: h.pos, ts: h.before.ts}
		}
		r.damage(s, d)
		r.dirty = true
	}
	return keep, nil
}

// settle makes the recovered tail durable.
func (r *recovery) settle(s *segment, keep mark) (err error) {
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
	s.zero.end = size
	l.manifest.Closed = nil
	r.dirty = true
	return nil
}

// cutTail copies what lies from the hole to the last byte that is not zero into quarantine/;
// settle truncates there. Frames behind the hole go too: none of them was known settled.
func (r *recovery) cutTail(s *segment, sc *scan, h hole) (err error) {
	f, err := r.log.fs.Open(s.walName())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := h.end
	if !h.tail {
		end = sc.pos
		if last := sc.holes[len(sc.holes)-1]; last.tail {
			end = last.end
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
	left := slices.DeleteFunc(slices.Clone(s.damaged()), func(d Damage) bool { return d.Pos >= h.pos })
	s.damage.Store(&left)
	return r.cutIndex(s, h.pos)
}

// cutIndex drops the entries of the rebuilt index from pos on.
func (r *recovery) cutIndex(s *segment, pos int64) error {
	x, err := openIndex(r.log.fs, s.idxName(), s.id, s.base, s.firstIndex, r.files[s.walName()], true)
	if err != nil { // it could not be written; the first reader builds it
		r.log.store.noteError(ignoreMissing(r.log.fs.Remove(s.idxName())))
		return nil
	}
	at := -1
	if pos > 0 {
		_, at, err = x.floor(byPos, uint64(pos-1))
	}
	return errors.Join(err, x.cut(at+1), x.close())
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
