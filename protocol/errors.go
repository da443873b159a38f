package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Code is a wire status. As an error it is its own sentinel: errors.Is(err, UnknownTopic).
type Code uint16

// The codes. 0 is success and no error.
const (
	OK               Code = 0
	BadFrame         Code = 1
	BadChecksum      Code = 2
	Unsupported      Code = 3
	TooLarge         Code = 4
	Unauthenticated  Code = 5
	Denied           Code = 6
	UnknownTopic     Code = 7
	UnknownPartition Code = 8
	Exists           Code = 9
	BadName          Code = 10
	BadRequest       Code = 11
	OffsetOutOfRange Code = 12
	LostSuffix       Code = 13
	Corrupt          Code = 14
	Fenced           Code = 15
	LeaseLost        Code = 16
	OutOfSequence    Code = 17
	NoSpace          Code = 18
	StorageFailed    Code = 19
	ReadOnly         Code = 20
	Throttled        Code = 21
	Quota            Code = 22
	Timeout          Code = 23
	UnknownOutcome   Code = 24
	NotLeader        Code = 25
	NoQuorum         Code = 26
	NoDestination    Code = 27
	ShuttingDown     Code = 28
	Internal         Code = 29
	UnknownHandle    Code = 30
)

// ErrorSpec is one row of the error table.
type ErrorSpec struct {
	Code      Code
	Name      string
	Retriable bool   // the same request may succeed later, unchanged
	Text      string // one sentence for people
}

// Errors is the only table of wire codes.
var Errors = []ErrorSpec{
	{OK, "OK", false, "success"},
	{BadFrame, "BAD_FRAME", false, "a frame's bytes do not follow the format"},
	{BadChecksum, "BAD_CHECKSUM", true, "a frame's check does not match its bytes: it was altered on the way"},
	{Unsupported, "UNSUPPORTED", false, "this broker does not serve the opcode, version or feature"},
	{TooLarge, "TOO_LARGE", false, "a frame, message or count is over its limit"},
	{Unauthenticated, "UNAUTHENTICATED", false, "say HELLO (and AUTH where it is on) first"},
	{Denied, "DENIED", false, "the client may not do this"},
	{UnknownTopic, "UNKNOWN_TOPIC", false, "the topic does not exist and may not be created on demand"},
	{UnknownPartition, "UNKNOWN_PARTITION", false, "the topic has no such partition"},
	{Exists, "EXISTS", false, "the name is taken"},
	{BadName, "BAD_NAME", false, "the name has a forbidden form"},
	{BadRequest, "BAD_REQUEST", false, "the request's arguments do not make sense"},
	{OffsetOutOfRange, "OFFSET_OUT_OF_RANGE", false, "the position lies before the first or after the last offset"},
	{LostSuffix, "LOST_SUFFIX", false, "the log lost a suffix that was never durable; the position lies in it"},
	{Corrupt, "CORRUPT", false, "stored bytes are damaged; the range can be skipped explicitly"},
	{Fenced, "FENCED", false, "a newer owner took over"},
	{LeaseLost, "LEASE_LOST", false, "the lease expired and the message went to somebody else"},
	{OutOfSequence, "OUT_OF_SEQUENCE", false, "a producer's sequence jumps"},
	{NoSpace, "NO_SPACE", true, "the disk is full; nothing was appended"},
	{StorageFailed, "STORAGE_FAILED", false, "the disk failed; whether the last records are durable is unknown"},
	{ReadOnly, "READ_ONLY", false, "the partition serves reads only"},
	{Throttled, "THROTTLED", true, "too much at once; retry after the pause that the answer names"},
	{Quota, "QUOTA", false, "a count is at its limit"},
	{Timeout, "TIMEOUT", true, "nothing to answer within the time given"},
	{UnknownOutcome, "UNKNOWN_OUTCOME", false, "whether the request took effect is not known"},
	{NotLeader, "NOT_LEADER", true, "another node leads the partition"},
	{NoQuorum, "NO_QUORUM", true, "no majority of replicas is reachable"},
	{NoDestination, "NO_DESTINATION", false, "the topic demands a subscription and has none"},
	{ShuttingDown, "SHUTTING_DOWN", true, "the broker is stopping; nothing was appended"},
	{Internal, "INTERNAL", false, "a defect of the broker; its log says more"},
	{UnknownHandle, "UNKNOWN_HANDLE", false, "no OPEN on this connection gave that handle"},
}

var specs = func() map[Code]*ErrorSpec {
	m := make(map[Code]*ErrorSpec, len(Errors))
	for i := range Errors {
		m[Errors[i].Code] = &Errors[i]
	}
	return m
}()

// Name is the code's upper-case name.
func (c Code) Name() string {
	if s := specs[c]; s != nil {
		return s.Name
	}
	return "CODE_" + itoa(uint64(c))
}

// Retriable tells whether the same request may succeed later, unchanged.
func (c Code) Retriable() bool { s := specs[c]; return s != nil && s.Retriable }

// Error makes a code an error, so that it can be matched with errors.Is.
func (c Code) Error() string {
	if s := specs[c]; s != nil {
		return s.Name + ": " + s.Text
	}
	return c.Name()
}

// Error is a refusal: what, how much, against which limit, held by which setting.
//
// Bounds: text fields are cut to at most 1,024 bytes each, at a character, when encoded. Zero numbers and empty texts
// are unset.
type Error struct {
	Code    Code
	Detail  string // what happened, with names
	Actual  uint64
	Limit   uint64
	Setting string // the setting or limit that holds Limit
	From    uint64 // OFFSET_OUT_OF_RANGE: first offset; CORRUPT: first damaged offset
	To      uint64 // OFFSET_OUT_OF_RANGE and LOST_SUFFIX: end; CORRUPT: first offset behind the damage
	Epoch   uint32 // LOST_SUFFIX: the partition's epoch
	Hint    string // what to do
}

// Is matches a Code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Retriable tells whether the same request may succeed later, unchanged.
func (e *Error) Retriable() bool { return e.Code.Retriable() }

// Error prints name, detail, actual against limit, range and hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Code.Name())
	b.WriteString(": ")
	if e.Detail != "" {
		b.WriteString(e.Detail)
	} else if s := specs[e.Code]; s != nil {
		b.WriteString(s.Text)
	}
	if e.Limit != 0 {
		fmt.Fprintf(&b, " (%d > %d, %s)", e.Actual, e.Limit, e.Setting)
	}
	switch e.Code {
	case OffsetOutOfRange, Corrupt:
		fmt.Fprintf(&b, " [%d, %d)", e.From, e.To)
	case LostSuffix:
		fmt.Fprintf(&b, " end %d, epoch %d", e.To, e.Epoch)
	}
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// AsError finds the *Error in err, or wraps err as INTERNAL: an OK that travels as an error is
// a defect too, and must not reach the peer as success. nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var c Code
	if errors.As(err, &c) && c != OK {
		return &Error{Code: c, Detail: err.Error()}
	}
	return &Error{Code: Internal, Detail: err.Error()}
}

const maxErrorText = 1024

// clip cuts a text to maxErrorText bytes, before the character that the cut would split.
func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	n := maxErrorText
	for n > maxErrorText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// AppendTo appends the payload of a refusal to dst.
//
//	detail str | actual u64 | limit u64 | setting str | from u64 | to u64 | epoch u32 | hint str
func (e *Error) AppendTo(dst []byte) []byte {
	dst = appendString(dst, clip(e.Detail))
	dst = appendU64(dst, e.Actual)
	dst = appendU64(dst, e.Limit)
	dst = appendString(dst, clip(e.Setting))
	dst = appendU64(dst, e.From)
	dst = appendU64(dst, e.To)
	dst = appendU32(dst, e.Epoch)
	return appendString(dst, clip(e.Hint))
}

// Decode reads the payload of a refusal; the code travels in the header.
func (e *Error) Decode(code Code, src []byte) error {
	c := cursor{b: src}
	*e = Error{Code: code, Detail: c.str(), Actual: c.u64(), Limit: c.u64(), Setting: c.str(),
		From: c.u64(), To: c.u64(), Epoch: c.u32(), Hint: c.str()}
	return c.done("error")
}
