package protocol

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// PositionKind says how a Position is to be resolved.
type PositionKind uint8

// The kinds of position.
const (
	PositionStart  PositionKind = 0 // the first offset that is kept
	PositionEnd    PositionKind = 1 // behind the last visible offset
	PositionOffset PositionKind = 2 // Value is an offset
	PositionLast   PositionKind = 3 // Value offsets before the end, or the start if that is nearer
	PositionTime   PositionKind = 4 // first offset appended at or after Value, ns since 1970; the end if none was
)

// Position is a place in a partition that the broker resolves.
type Position struct {
	Kind  PositionKind
	Value uint64
}

// Convenient positions.
var (
	Start = Position{Kind: PositionStart}
	End   = Position{Kind: PositionEnd}
)

// At is the position of an offset.
func At(offset uint64) Position { return Position{PositionOffset, offset} }

// Last is n offsets before the end.
func Last(n uint64) Position { return Position{PositionLast, n} }

// Since is the first offset appended at t or later. Times outside 1970 to 2262 count as the
// nearest that nanoseconds in an int64 can tell.
func Since(t time.Time) Position {
	switch {
	case t.Before(time.Unix(0, 0)):
		return Position{PositionTime, 0}
	case t.After(time.Unix(0, math.MaxInt64)):
		return Position{PositionTime, math.MaxInt64}
	}
	return Position{PositionTime, uint64(t.UnixNano())}
}

// String writes the position in the grammar that ParsePosition reads.
func (p Position) String() string {
	switch p.Kind {
	case PositionStart:
		return "start"
	case PositionEnd:
		return "end"
	case PositionOffset:
		return itoa(p.Value)
	case PositionLast:
		return "-" + itoa(p.Value)
	case PositionTime:
		if p.Value > math.MaxInt64 { // past the last year that the clock can tell
			return "@" + itoa(p.Value) + "ns"
		}
		return "@" + time.Unix(0, int64(p.Value)).UTC().Format(time.RFC3339Nano)
	}
	return "position(" + itoa(uint64(p.Kind)) + ")"
}

// ParsePosition reads the one position grammar:
//
//	start | end | 45678 | -100 (last 100) | -15m (that long before now) | @2026-11-30T10:00Z
//
// A time may leave out seconds, or the clock altogether; without a zone it is UTC. It may also
// be given as @1796000000000000000ns, since 1970. Durations take the units ns us ms s m h d.
//
// Errors: BadRequest with the grammar.
func ParsePosition(s string, now time.Time) (Position, error) {
	bad := func(why string) (Position, error) {
		return Position{}, &Error{Code: BadRequest, Detail: fmt.Sprintf("position %q: %s", s, why),
			Hint: "use start, end, 45678, -100, -15m or @2026-11-30T10:00Z"}
	}
	switch {
	case s == "start":
		return Start, nil
	case s == "end":
		return End, nil
	case s == "":
		return bad("empty")
	case s[0] == '@':
		return parseTime(s[1:], bad)
	case s[0] != '-':
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return bad("not an offset")
		}
		return At(v), nil
	}
	if v, err := strconv.ParseUint(s[1:], 10, 64); err == nil {
		return Last(v), nil
	}
	d, err := ParseDuration(s[1:])
	if err != nil {
		return bad("neither a count nor a duration")
	}
	return Since(now.Add(-d)), nil
}

func parseTime(s string, bad func(string) (Position, error)) (Position, error) {
	if digits, ok := strings.CutSuffix(s, "ns"); ok {
		ns, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return bad("not a time")
		}
		return Position{PositionTime, ns}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if t.Before(time.Unix(0, 0)) || t.After(time.Unix(0, math.MaxInt64)) {
			return bad("time outside 1970 to 2262")
		}
		return Since(t), nil
	}
	return bad("not a time")
}

// ParseDuration is time.ParseDuration with days: 7d, 1d12h. Signs are refused, and what does not
// fit a time.Duration.
func ParseDuration(s string) (time.Duration, error) {
	var days time.Duration
	rest := s
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseUint(s[:i], 10, 32)
		if err != nil || n > 100_000 {
			return 0, fmt.Errorf("duration %q: days", s)
		}
		days, rest = time.Duration(n)*24*time.Hour, s[i+1:]
		if rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest, "+-") || d > math.MaxInt64-days {
		return 0, fmt.Errorf("duration %q: use 250ms, 30s, 15m, 12h, 7d", s)
	}
	return days + d, nil
}

func (p Position) appendTo(dst []byte) []byte {
	return appendU64(append(dst, uint8(p.Kind)), p.Value)
}

func (c *cursor) position() Position {
	p := Position{PositionKind(c.u8()), c.u64()}
	if p.Kind > PositionTime {
		c.bad = true
	}
	return p
}
