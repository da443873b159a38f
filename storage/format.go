package storage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
)

// Version is the format of everything that this package writes. A file of a later one is
// refused without writing a byte.
const Version = 1

const (
	manifestName  = "MANIFEST"
	nodeName      = "NODE"
	lockName      = "LOCK"
	quarantineDir = "quarantine"

	walSuffix   = ".wal"
	idxSuffix   = ".idx"
	stateSuffix = ".state"
)

// MaxSegmentBytes is the largest segment: positions in an index are 32 bits.
const MaxSegmentBytes = protocol.MaxSegmentBytes

// blockBytes is the distance of index entries: one for the first frame that starts at least
// so far behind the previous entry. It bounds how many headers a lookup hops over.
const blockBytes = 16 << 10

// stem is a segment's name without suffix: base offset and id. The id is unique in the log for
// ever, so a file that replaces another one never has its name.
func stem(base, id uint64) string { return fmt.Sprintf("%020d-%d", base, id) }

// parseStem reads base and id back from a file name.
func parseStem(name, suffix string) (base, id uint64, ok bool) {
	s, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, 0, false
	}
	b, i, ok := strings.Cut(s, "-")
	if !ok || len(b) != 20 {
		return 0, 0, false
	}
	base, err1 := strconv.ParseUint(b, 10, 64)
	id, err2 := strconv.ParseUint(i, 10, 64)
	return base, id, err1 == nil && err2 == nil && stem(base, id) == s
}
