package protocol

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reject is one vector of bytes that must be refused.
type reject struct {
	name    string
	about   string
	decoder string
	code    Code
	b       []byte
}

// decoders are what the words behind "decoder" stand for.
func decoders() map[string]func(b []byte) error {
	all := map[string]func(b []byte) error{
		"header":      func(b []byte) error { _, err := Bounds{}.Size(b); return err },
		"stored":      func(b []byte) error { _, err := CheckStored(b, MaxDataFrame); return err },
		"frame":       func(b []byte) error { _, err := CheckFrame(b, DefaultMessageBytes); return err },
		"run":         func(b []byte) error { _, err := CheckRun(b, DefaultMessageBytes); return err },
		"legacyHello": func(b []byte) error { _, _, err := ParseLegacyHello(b); return err },
		"legacyFrame": func(b []byte) error { _, err := LegacySize(b, DefaultMessageBytes); return err },
		"Error":       func(b []byte) error { return new(Error).Decode(BadRequest, b) },
		"GroupOffsets": func(b []byte) error {
			return DecodeGroupOffsets(b, func(GroupOffset) {})
		},
	}
	for name, m := range messages() {
		all[name] = m.Decode
	}
	return all
}

// messages are the decoders of the message table, by name.
func messages() map[string]message {
	return map[string]message{
		"Hello": new(Hello), "HelloReply": new(HelloReply), "Open": new(Open), "OpenReply": new(OpenReply), "Settings": new(TopicSettings),
		"TopicInfo": new(TopicInfo), "TopicList": new(TopicList), "TopicListReply": new(TopicListReply), "Offsets": new(Offsets),
		"OffsetsReply": new(OffsetsReply), "Subscribe": new(Subscribe), "SubscribeReply": new(SubscribeReply), "Unsubscribe": new(Unsubscribe), "Stats": new(Stats),
	}
}

func TestEveryMessageHasADecoder(t *testing.T) {
	have := decoders()
	for _, m := range Messages {
		if m.Name != "Position" { // part of others
			require.Contains(t, have, m.Name)
		}
	}
}

func TestRejectVectorsAreRefusedWithTheirCode(t *testing.T) {
	names := map[string]bool{}
	for file, rejects := range map[string][]reject{
		"reject-header.txt":  headerRejects(),
		"reject-frame.txt":   slices.Concat(frameRejects(), recordRejects()),
		"reject-message.txt": messageRejects(t),
		"reject-legacy.txt":  legacyRejects(),
	} {
		var text strings.Builder
		text.WriteString("# Bytes that must be refused, written by the tests of protocol. README.md says how to read them.\n")
		for _, r := range rejects {
			require.False(t, names[r.name], r.name)
			names[r.name] = true
			fmt.Fprintf(&text, "\n== %s\nabout  %s\ndecoder %s\ncode   %s\n", r.name, r.about, r.decoder, r.code.Name())
			writeHex(&text, r.b, "")
		}
		path := filepath.Join(wireDir, file)
		golden(t, path, text.String())
		stored, err := os.ReadFile(path)
		require.NoError(t, err)
		found, decode := vectorBytes(t, string(stored)), decoders()
		require.Len(t, found, len(rejects))
		for _, r := range rejects {
			err := decode[r.decoder](found[r.name])
			require.ErrorIs(t, err, r.code, "%s: %v", r.name, err)
			require.NotEmpty(t, AsError(err).Detail, r.name)
		}
	}
	require.GreaterOrEqual(t, len(names), 40)
}

// head makes a header by its numbers.
func head(magic byte, key, payload, count uint32) []byte {
	h := Header{magic}
	h.SetSizes(key, payload)
	h.SetRecordCount(count)
	return h[:]
}

func headerRejects() []reject {
	list := []reject{
		{"zero-magic", "zeros never start a frame", "header", Unsupported, make([]byte, HeaderSize)},
		{"data-version-2", "class DATA, version 2", "header", Unsupported, head(0x02, 0, 100, 1)},
		{"request-version-2", "class REQUEST, version 2", "header", Unsupported, head(0x12, 0, 0, 0)},
		{"class-1-version-0", "class REQUEST, version 0", "header", Unsupported, head(0x10, 0, 0, 0)},
		{"http", "a request of another protocol", "header", Unsupported, []byte("GET / HTTP/1.1\r\nHost: example\r\n")},
		{"data-sizes-overflow", "the sum of the sizes is 29 in 32 bits", "header", TooLarge, head(0x01, 0x80000000, 0x80000000, 1)},
		{"data-sizes-largest", "both sizes are 2^32 − 1", "header", TooLarge, head(0x01, math.MaxUint32, math.MaxUint32, 1)},
		{"request-sizes-overflow", "the sum of the sizes is small in 32 bits", "header", TooLarge, head(0x11, math.MaxUint32, 1, 0)},
		{"response-too-large", "one byte over the limit of control frames", "header", TooLarge, head(0x21, 0, MaxControlFrame-HeaderSize+1, 0)},
		{"skipped-too-large", "a class that is hopped over has a limit too", "header", TooLarge, head(0xF1, 0, MaxControlFrame, 0)},
		{"data-too-large", "one byte over the limit of DATA frames", "header", TooLarge, head(0x01, 0, MaxDataFrame-HeaderSize+1, 1)},
		{"data-key-and-payload-too-large", "each size is within the limit, their sum is not", "header", TooLarge, head(0x01, MaxDataFrame/2, MaxDataFrame/2+1, 1)},
		{"data-without-payload", "no room for prelude and tail", "header", BadFrame, head(0x01, 0, 0, 1)},
		{"data-payload-31", "one byte too few for prelude and tail", "header", BadFrame, head(0x01, 100, PreludeSize+TailSize-1, 1)},
		{"data-records-over", "2^20 + 1 records", "header", TooLarge, head(0x01, 0, 100, MaxRecords+1)},
		{"data-records-largest", "2^32 − 1 records", "header", TooLarge, head(0x01, 0, 100, math.MaxUint32)},
	}
	for class := byte(1); class < 8; class++ {
		list = append(list, reject{fmt.Sprintf("class-%d-unknown", class), "a version of the class that nobody has defined: hang up", "header", Unsupported,
			head(class<<4|0x0F, 0, 0, 0)})
	}
	return list
}

// frame makes a sealed DATA frame whose body and recordCount need not agree.
func frame(p Prelude, key string, body []byte, count uint32) []byte {
	return appendFrame(nil, p, []byte(key), body, count)
}

// changed returns a copy of a frame with one byte changed, and its check set again if seal.
func changed(f []byte, at int, v byte, seal bool) []byte {
	c := slices.Clone(f)
	c[at] = v
	if seal {
		Frame(c).Seal()
	}
	return c
}

func frameRejects() []reject {
	one := appendRecord(nil, []byte("k"), []byte("value"), nil)
	good := frame(Prelude{}, "", one, 1)
	unfit := changed(frame(Prelude{}, "", nil, 1), HeaderSize+1, FlagProducer, true)
	return []reject{
		{"stored-request", "a REQUEST where a DATA frame must start", "stored", BadFrame, head(0x11, 0, 0, 0)},
		{"stored-zeros", "a zero-filled tail", "stored", BadFrame, make([]byte, 64)},
		{"stored-nothing", "no bytes at all", "stored", BadFrame, nil},
		{"stored-half-header", "the bytes end inside the header", "stored", BadFrame, good[:20]},
		{"stored-half-frame", "the bytes end one before the frame does", "stored", BadFrame, good[:len(good)-1]},
		{"check-flipped", "one bit of the check", "frame", BadChecksum, changed(good, len(good)-1, good[len(good)-1]^1, false)},
		{"check-of-value", "one bit of a value", "frame", BadChecksum, changed(good, HeaderSize+PreludeSize+recordPrefix+1, 'V', false)},
		{"check-of-timestamp", "one bit of the timestamp", "frame", BadChecksum, changed(good, 8, 1, false)},
		{"check-of-count", "one more record", "frame", BadChecksum, changed(good, 28, 2, false)},
		{"check-of-tail", "one bit of the index", "frame", BadChecksum, changed(good, len(good)-TailSize, 1, false)},
		{"check-zero", "no check at all", "frame", BadChecksum, slices.Concat(good[:len(good)-8], make([]byte, 8))},
		{"prelude-flag-unknown", "a flag that announces an unknown field", "frame", BadFrame, changed(good, HeaderSize+1, 0x10, true)},
		{"prelude-does-not-fit", "flags announce more than the payload has", "stored", BadFrame, unfit},
		{"control-from-client", "control records are the broker's", "frame", Denied, frame(Prelude{Opcode: ControlOffset}, "", make([]byte, 4), 0)},
		{"control-unknown-from-client", "so are those that nobody has defined", "frame", Denied, frame(Prelude{Opcode: 0xFFFF}, "", nil, 0)},
		{"sparse-from-client", "compaction is the broker's", "frame", Unsupported, frame(Prelude{Layout: LayoutSparse}, "", append(make([]byte, 4), one...), 1)},
		{"layout-unknown", "layout 3", "frame", Unsupported, frame(Prelude{Layout: 3}, "", one, 1)},
		{"layout-largest", "layout 15", "frame", Unsupported, frame(Prelude{Layout: 15}, "", one, 1)},
		{"plain-with-frame-key", "keys of plain frames are per record", "frame", BadFrame, frame(Prelude{}, "key", one, 1)},
		{"codec-with-frame-key", "compressed or not", "frame", BadFrame, frame(Prelude{Codec: 1}, "key", one, 1)},
		{"codec-without-records", "a compressed batch of nothing", "frame", BadFrame, frame(Prelude{Codec: 1}, "", one, 0)},
		{"run-empty", "a run without a frame", "run", BadFrame, nil},
		{"run-second-damaged", "the second of two frames: nothing of the run is appended", "run", BadChecksum, slices.Concat(good, changed(good, 40, 0xAA, false))},
		{"run-second-cut", "the run ends inside its second frame", "run", BadFrame, slices.Concat(good, good[:HeaderSize+5])},
		{"run-trailing-byte", "one byte behind the last frame", "run", BadFrame, slices.Concat(good, []byte{1})},
		{"run-trailing-zeros", "zeros behind the last frame", "run", BadFrame, slices.Concat(good, make([]byte, 40))},
		{"run-of-request", "a run holds DATA frames alone", "run", BadFrame, slices.Concat(good, head(0x11, 0, 3, 0), []byte("abc"))},
		{"opaque-no-records", "an opaque frame takes at least one offset", "frame", BadFrame, frame(Prelude{Layout: LayoutOpaque}, "", []byte("abc"), 0)},
		{"opaque-more-records-than-bytes", "4 records in 3 bytes", "frame", BadFrame, frame(Prelude{Layout: LayoutOpaque}, "", []byte("abc"), 4)},
		{"opaque-empty-two-records", "2 records in no bytes", "frame", BadFrame, frame(Prelude{Layout: LayoutOpaque}, "", nil, 2)},
	}
}

func recordRejects() []reject {
	one := appendRecord(nil, []byte("k"), []byte("value"), nil)
	prefix := func(key, headers uint16, value uint32, rest string) []byte {
		return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, key), headers), value), rest...)
	}
	plain := func(body []byte, count uint32) []byte { return frame(Prelude{}, "", body, count) }
	headers := func(h string) []byte { return plain(prefix(noKey, uint16(len(h)), 0, h), 1) }
	return []reject{
		{"records-none", "recordCount 0 with a record", "frame", BadFrame, plain(one, 0)},
		{"records-none-empty", "recordCount 0 without a record", "frame", BadFrame, plain(nil, 0)},
		{"records-too-many", "2 records are there, 1 is counted", "frame", BadFrame, plain(slices.Concat(one, one), 1)},
		{"records-too-few", "1 record is there, 2 are counted", "frame", BadFrame, plain(one, 2)},
		{"records-claimed", "2^20 records are counted in one record's bytes", "frame", BadFrame, plain(one, MaxRecords)},
		{"records-over", "2^20 + 1 records are counted", "frame", TooLarge, plain(one, MaxRecords+1)},
		{"records-largest", "2^32 − 1 records are counted", "frame", TooLarge, plain(one, math.MaxUint32)},
		{"record-prefix-cut", "7 of a record's first 8 bytes", "frame", BadFrame, plain(make([]byte, 7), 1)},
		{"record-key-beyond", "a key of 6 bytes in 5", "frame", BadFrame, plain(prefix(6, 0, 0, "abcde"), 1)},
		{"record-key-largest", "a key of 65,534 bytes in 5", "frame", BadFrame, plain(prefix(MaxKey, 0, 0, "abcde"), 1)},
		{"record-headers-beyond", "headers of 6 bytes in 5", "frame", BadFrame, plain(prefix(noKey, 6, 0, "\x00\x00\x02ab"), 1)},
		{"record-value-beyond", "a value of 6 bytes in 5", "frame", BadFrame, plain(prefix(noKey, 0, 6, "abcde"), 1)},
		{"record-value-negative", "a value whose length is −2 as a signed number", "frame", BadFrame, plain(prefix(noKey, 0, 0xFFFFFFFE, "abcde"), 1)},
		{"record-value-wraps", "lengths whose sum with the prefix is 5 in 32 bits", "frame", BadFrame, plain(prefix(noKey, 0, 0xFFFFFFF8, "abcde"), 1)},
		{"record-trailing-byte", "one byte behind the last record", "frame", BadFrame, plain(append(slices.Clone(one), 0), 1)},
		{"headers-cut", "a header's first 2 of 3 bytes of lengths", "frame", BadFrame, headers("\x01\x00")},
		{"headers-name-beyond", "a name that ends behind the headers", "frame", BadFrame, headers("\x05\x00\x00name")},
		{"headers-value-beyond", "a value that ends behind the headers", "frame", BadFrame, headers("\x01\x00\x05nval")},
		{"headers-trailing", "a byte behind the last header", "frame", BadFrame, headers("\x01\x00\x01nv\x00")},
	}
}

// samples are messages with something in every list and text.
func samples() map[string]message {
	return map[string]message{
		"Hello": &Hello{1, 1, 2, 3, "client", "1"}, "HelloReply": &HelloReply{1, 2, 3, 4, 5, 6, 7, 8, "c", "s", "v"},
		"Open": &Open{1, 1}, "OpenReply": &OpenReply{1, 2, 3, 4, 5, 6, 7}, "Settings": &TopicSettings{{SettingPartitions, 1}, {SettingRetention, 2}},
		"TopicInfo": &TopicInfo{"orders", 1, TopicSettings{{SettingPartitions, 1}}, []PartitionInfo{{1, 2, 3, 4, 5, 6, 7, 8}}},
		"TopicList": &TopicList{"a", 1}, "TopicListReply": &TopicListReply{true, []TopicSummary{{"orders", 1, 2, 3, 4}}},
		"Offsets": &Offsets{[]OffsetsItem{{1, At(2)}}}, "OffsetsReply": &OffsetsReply{[]PartitionOffsets{{1, 2, 3, 4, 5, 6, 7}}},
		"Subscribe": &Subscribe{1, 2, At(3), true, End, 5}, "SubscribeReply": &SubscribeReply{1, 2, 3, 4}, "Unsubscribe": &Unsubscribe{1},
		"Stats": &Stats{[]Stat{{"pid", 1}}},
	}
}

// messageRejects takes from each message its last byte and adds one, claims too much in each
// list, and names kinds that do not exist.
func messageRejects(t testing.TB) (list []reject) {
	bytesOf := map[string][]byte{"Error": (&Error{Denied, "d", 1, 2, "s", 3, 4, 5, "h"}).AppendTo(nil), "GroupOffsets": AppendGroupOffsets(nil, []GroupOffset{{"g", 1, 2}})}
	for name, m := range samples() {
		bytesOf[name] = m.AppendTo(nil)
	}
	for _, name := range slices.Sorted(maps.Keys(bytesOf)) {
		require.NoError(t, decoders()[name](bytesOf[name]), name)
		b, low := bytesOf[name], strings.ToLower(name)
		list = append(list,
			reject{low + "-empty", "no bytes at all", name, BadRequest, nil},
			reject{low + "-cut", "the last byte is missing", name, BadRequest, b[:len(b)-1]},
			reject{low + "-trailing", "one byte behind the last field", name, BadRequest, append(slices.Clone(b), 0)})
	}
	count := func(n uint32, rest ...byte) []byte { return append(appendU32(nil, n), rest...) }
	item := make([]byte, 64)
	return append(list,
		reject{"settings-count", "2^32 − 1 settings in 64 bytes", "Settings", BadRequest, count(math.MaxUint32, item...)},
		reject{"offsets-count", "5 questions of 13 bytes in 64 bytes", "Offsets", BadRequest, count(5, item...)},
		reject{"offsets-count-largest", "2^32 − 1 questions", "Offsets", BadRequest, count(math.MaxUint32, item...)},
		reject{"offsetsreply-count", "2 answers of 42 bytes in 64 bytes", "OffsetsReply", BadRequest, count(2, item...)},
		reject{"stats-count", "2^31 numbers", "Stats", BadRequest, count(1<<31, item...)},
		reject{"topiclistreply-count", "3 topics of at least 30 bytes in 64 bytes", "TopicListReply", BadRequest, append([]byte{0}, count(3, item...)...)},
		reject{"topicinfo-count", "2 partitions of 49 bytes in 64 bytes", "TopicInfo", BadRequest, slices.Concat([]byte{0, 0}, make([]byte, 8), count(0), count(2, item...))},
		reject{"groupoffsets-count", "5 positions of at least 14 bytes in 64 bytes", "GroupOffsets", BadRequest, count(5, item...)},
		reject{"groupoffsets-count-largest", "2^32 − 1 positions", "GroupOffsets", BadRequest, count(math.MaxUint32, item...)},
		reject{"hello-text-beyond", "a text of 65,535 bytes in 4", "Hello", BadRequest, append(make([]byte, 14), 0xFF, 0xFF, 'a', 'b', 'c', 'd')},
		reject{"error-text-beyond", "a text of 9 bytes in 3", "Error", BadRequest, []byte{0, 9, 'a', 'b', 'c'}},
		reject{"position-kind-5", "a position of an unknown kind", "Subscribe", BadRequest, (&Subscribe{From: Position{Kind: 5}}).AppendTo(nil)},
		reject{"position-kind-255", "in the other position", "Subscribe", BadRequest, (&Subscribe{HasTo: true, To: Position{Kind: 255}}).AppendTo(nil)},
		reject{"offsets-position-kind", "in a question", "Offsets", BadRequest, (&Offsets{[]OffsetsItem{{0, Position{Kind: 6}}}}).AppendTo(nil)},
	)
}

func legacyRejects() []reject {
	return []reject{
		{"legacy-kind-0", "first byte 0", "legacyHello", BadFrame, make([]byte, 8)},
		{"legacy-kind-4", "first byte 4", "legacyHello", BadFrame, []byte{4, 1, 'a', 0, 0, 0, 0}},
		{"legacy-kind-text", "a protocol of text", "legacyHello", BadFrame, []byte("PUB orders 5\r\n")},
		{"legacy-produce-empty-topic", "an empty topic", "legacyHello", BadFrame, []byte{1, 0, 0, 0, 0, 0}},
		{"legacy-consume-empty-group", "an empty group", "legacyHello", BadFrame, []byte{2, 0, 1, 'a', 0, 0, 0, 0}},
		{"legacy-consume-empty-topic", "an empty topic", "legacyHello", BadFrame, []byte{2, 1, 'g', 0, 0, 0, 0, 0}},
		{"legacy-commit-empty-group", "an empty group", "legacyHello", BadFrame, append([]byte{3, 0, 1, 'a'}, make([]byte, 12)...)},
		{"legacy-frame-magic", "another magic", "legacyFrame", BadFrame, head(0x11, 0, 3, 1)},
		{"legacy-frame-zeros", "zeros", "legacyFrame", BadFrame, make([]byte, HeaderSize)},
		{"legacy-frame-key", "a key one byte over the limit", "legacyFrame", TooLarge, head(0x01, MaxKey+1, 3, 1)},
		{"legacy-frame-key-largest", "a key of 2^32 − 1 bytes", "legacyFrame", TooLarge, head(0x01, math.MaxUint32, 0, 1)},
		{"legacy-frame-message", "key and payload one byte over max_message_bytes together", "legacyFrame", TooLarge, head(0x01, 10, DefaultMessageBytes-9, 1)},
		{"legacy-frame-message-largest", "a payload of 2^32 − 1 bytes", "legacyFrame", TooLarge, head(0x01, 0, math.MaxUint32, 1)},
		{"legacy-frame-sizes-wrap", "sizes whose sum is 9 in 32 bits", "legacyFrame", TooLarge, head(0x01, 10, math.MaxUint32, 1)},
		{"legacy-frame-count", "8 records in 7 bytes", "legacyFrame", BadFrame, head(0x01, 3, 4, 8)},
		{"legacy-frame-count-empty", "2 records in no bytes", "legacyFrame", BadFrame, head(0x01, 0, 0, 2)},
		{"legacy-frame-count-largest", "2^32 − 1 records in 7 bytes", "legacyFrame", TooLarge, head(0x01, 3, 4, math.MaxUint32)},
	}
}

// TestMessagesCutAnywhereAreRefused cuts each message at every byte, so at every field.
func TestMessagesCutAnywhereAreRefused(t *testing.T) {
	cut := func(name string, b []byte) {
		for n := range b {
			require.ErrorIs(t, decoders()[name](b[:n]), BadRequest, "%s cut to %d of %d bytes", name, n, len(b))
		}
	}
	for name, m := range samples() {
		cut(name, m.AppendTo(nil))
	}
	cut("Error", (&Error{Denied, "detail", 1, 2, "setting", 3, 4, 5, "hint"}).AppendTo(nil))
	cut("GroupOffsets", AppendGroupOffsets(nil, []GroupOffset{{"a", 1, 2}, {"b", 3, 4}}))
}

// TestListsOverTheirLimitAreRefused though all their bytes are there.
func TestListsOverTheirLimitAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
		list  func(n int) message
	}{
		{"Settings", 256, func(n int) message { m := make(TopicSettings, n); return &m }},
		{"TopicInfo", MaxPartitions, func(n int) message { return &TopicInfo{Partitions: make([]PartitionInfo, n)} }},
		{"Offsets", MaxPartitions, func(n int) message { return &Offsets{make([]OffsetsItem, n)} }},
		{"OffsetsReply", MaxPartitions, func(n int) message { return &OffsetsReply{make([]PartitionOffsets, n)} }},
		{"TopicListReply", MaxListItems, func(n int) message { return &TopicListReply{Items: make([]TopicSummary, n)} }},
		{"Stats", MaxListItems, func(n int) message { return &Stats{make([]Stat, n)} }},
	} {
		require.NoError(t, decoders()[c.name](c.list(c.limit).AppendTo(nil)), c.name)
		require.ErrorIs(t, decoders()[c.name](c.list(c.limit+1).AppendTo(nil)), BadRequest, c.name)
	}
	require.LessOrEqual(t, HeaderSize+len((&TopicInfo{Name: strings.Repeat("n", MaxName), Settings: make(TopicSettings, len(Settings)),
		Partitions: make([]PartitionInfo, MaxPartitions)}).AppendTo(nil)), MaxControlFrame, "the largest topic can be described in one frame")
	require.LessOrEqual(t, HeaderSize+len((&OffsetsReply{make([]PartitionOffsets, MaxPartitions)}).AppendTo(nil)), MaxControlFrame)
}

// TestCountsDecideNothingAboutMemory: a list that claims as many items as are allowed, in bytes
// for few, is refused before room is made for them.
func TestCountsDecideNothingAboutMemory(t *testing.T) {
	for name, head := range map[string]int{"Settings": 0, "TopicInfo": 2 + 8 + 4, "Offsets": 0, "OffsetsReply": 0, "TopicListReply": 1, "Stats": 0} {
		for _, count := range []uint32{20, 100, 250, MaxListItems} {
			b := append(appendU32(make([]byte, head), count), make([]byte, 150)...)
			m := messages()[name]
			require.ErrorIs(t, m.Decode(b), BadRequest, name)
			require.LessOrEqual(t, deepSize(reflect.ValueOf(m)), 300, "%s of %d items in 150 bytes", name, count)
		}
	}
}

// TestFramesCutAnywhereAreAskedForAgainOrRefused cuts a frame at every byte: what judges by
// the header waits for more, what needs the frame refuses.
func TestFramesCutAnywhereAreAskedForAgainOrRefused(t *testing.T) {
	f := sealed(t, 2, 10)
	for n := range f {
		size, err := Bounds{}.Size(f[:n])
		require.NoError(t, err)
		if n < HeaderSize {
			require.Zero(t, size)
		} else {
			require.Equal(t, len(f), size)
		}
		_, err = CheckStored(f[:n], MaxDataFrame)
		require.ErrorIs(t, err, BadFrame)
		_, err = CheckRun(f[:n], DefaultMessageBytes)
		require.ErrorIs(t, err, BadFrame)
	}
	hello := (&LegacyHello{LegacyCommit, "group", "topic", 1, 2}).AppendTo(nil)
	for n := range hello {
		_, size, err := ParseLegacyHello(hello[:n])
		require.NoError(t, err)
		require.Zero(t, size)
	}
}

// TestMessagesOverTheTopicsLimitAreRefused: max_message_bytes holds for each record and for
// key and body of an opaque frame.
func TestMessagesOverTheTopicsLimitAreRefused(t *testing.T) {
	for _, c := range []struct {
		f    []byte
		want error
	}{
		{frame(Prelude{}, "", appendRecord(nil, []byte("key"), make([]byte, 97), nil), 1), nil},
		{frame(Prelude{}, "", appendRecord(nil, []byte("key"), make([]byte, 98), nil), 1), TooLarge},
		{frame(Prelude{Layout: LayoutOpaque}, "key", make([]byte, 97), 1), nil},
		{frame(Prelude{Layout: LayoutOpaque}, "key", make([]byte, 98), 1), TooLarge},
	} {
		_, err := CheckFrame(c.f, 100)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, c.want)
		require.Equal(t, Error{Code: TooLarge, Detail: AsError(err).Detail, Actual: 101, Limit: 100, Setting: "max_message_bytes"}, *AsError(err))
	}
	key := strings.Repeat("k", MaxKey+1)
	_, err := CheckFrame(frame(Prelude{Layout: LayoutOpaque}, key, nil, 1), DefaultMessageBytes)
	require.ErrorIs(t, err, TooLarge, "an opaque frame's key has the limit of every key")
}
