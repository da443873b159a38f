package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// manifest is the content of MANIFEST: which segments exist and how far the sealed ones reach.
// It is JSON, so that people can read it.
type manifest struct {
	Epoch       uint32         `json:"epoch"`
	NextSegment uint64         `json:"next_segment"` // ids below were used
	Segments    []segmentEntry `json:"segments"`     // ascending; all but the last are sealed
	Closed      *closedEnd     `json:"closed,omitempty"`
	Damage      []Damage       `json:"damage,omitempty"`
}

// segmentEntry is one segment. The fields behind FirstIndex are those of a sealed one.
type segmentEntry struct {
	ID         uint64 `json:"id"`
	Base       uint64 `json:"base"`
	FirstIndex uint64 `json:"first_index"`
	Sealed     bool   `json:"sealed,omitempty"`
	Size       int64  `json:"size,omitempty"`
	EndOffset  uint64 `json:"end_offset,omitempty"`
	EndIndex   uint64 `json:"end_index,omitempty"`
	FirstTS    uint64 `json:"first_ts,omitempty"`
	LastTS     uint64 `json:"last_ts,omitempty"`
}

// closedEnd is where the last segment ended when the log was closed. It is taken out before
// the first append of the next life, so a log that was not touched stays clean whatever
// happens to the broker.
type closedEnd struct {
	Size    int64  `json:"size"`
	Offset  uint64 `json:"offset"`
	Index   uint64 `json:"index"`
	FirstTS uint64 `json:"first_ts"`
	LastTS  uint64 `json:"last_ts"`
}

// Damage is a range of bytes of a segment that cannot be read. It stays where it is; readers
// are told and may skip it.
type Damage struct {
	Segment uint64 `json:"segment"`
	Pos     int64  `json:"pos"`
	EndPos  int64  `json:"end_pos"`
	From    uint64 `json:"from"` // first offset
	To      uint64 `json:"to"`   // first offset behind
	Kind    string `json:"kind"` // what was seen
}

func entryOf(s *segment) segmentEntry {
	e := segmentEntry{ID: s.id, Base: s.base, FirstIndex: s.firstIndex}
	if end := s.sealed.Load(); end != nil {
		e.Sealed, e.Size, e.EndOffset, e.EndIndex, e.FirstTS, e.LastTS = true, end.size, end.Offset, end.Index, end.firstTS, end.lastTS
	}
	return e
}

// writeManifest writes the manifest of the present segment list; mu is held.
func (l *Log) writeManifest() error {
	m := &l.manifest
	m.Epoch = l.epoch.Load()
	m.Segments = m.Segments[:0]
	m.Damage = m.Damage[:0]
	for _, s := range *l.segments.Load() {
		m.Segments = append(m.Segments, entryOf(s))
		m.Damage = append(m.Damage, s.damaged()...)
	}
	body, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return WriteSealed(l.fs, manifestName, "manifest", Version, append(body, '\n'))
}

// readManifest reads MANIFEST, or what was there before it. found is false in a new directory.
// why tells that the newest was unreadable, so that the caller looks harder at the files.
func (l *Log) readManifest() (found bool, why string, err error) {
	body, _, err := readSealed(l.fs, manifestName, "manifest", Version)
	if errors.Is(err, ErrNewer) {
		return false, "", err
	}
	if err == nil {
		err = l.manifest.decode(body)
	}
	if err == nil {
		return true, "", nil
	}
	var damaged *SealedError
	switch {
	case errors.As(err, &damaged):
		why = err.Error()
	case !errors.Is(err, fs.ErrNotExist):
		return false, "", err
	}
	body, _, err = readSealed(l.fs, manifestName+".prev", "manifest", Version)
	if err == nil && l.manifest.decode(body) == nil {
		l.manifest.Closed = nil // of an earlier life, perhaps: the log is scanned
		return true, why, nil
	}
	l.manifest = manifest{}
	return false, why, nil
}

// decode reads and checks a manifest.
func (m *manifest) decode(body []byte) error {
	*m = manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return &SealedError{manifestName, err}
	}
	bad := func(i int, why string) error {
		return &SealedError{manifestName, fmt.Errorf("segment %d of %d: %s", i+1, len(m.Segments), why)}
	}
	for i, s := range m.Segments {
		last := i == len(m.Segments)-1
		switch {
		case s.ID >= m.NextSegment:
			return bad(i, "id was not given yet")
		case !s.Sealed && !last:
			return bad(i, "not sealed")
		case s.Sealed && (s.Size < 0 || s.EndOffset < s.Base || s.EndIndex+1 < s.FirstIndex || s.FirstIndex == 0):
			return bad(i, "ends before it begins")
		case i > 0 && (s.Base < m.Segments[i-1].EndOffset || s.FirstIndex != m.Segments[i-1].EndIndex+1):
			return bad(i, "does not follow the one before")
		}
	}
	return nil
}
