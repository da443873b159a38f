package protocol

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// fit turns arbitrary bytes into a run whose frames are sealed and end where the run ends, so
// that what lies behind the check is reached. count also sets recordCount to what is there.
func fit(b []byte, count bool) []byte {
	b = bytes.Clone(b)
	for pos := 0; len(b)-pos >= MinFrame; {
		f := b[pos:]
		h := HeaderOf(f)
		f[0] = byte(MagicData)
		left := uint64(len(f) - HeaderSize)
		if h.FrameSize() > uint64(len(f)) || h.PayloadSize() < PreludeSize+TailSize {
			key := min(uint64(h.KeySize()), left-PreludeSize-TailSize)
			h.SetSizes(uint32(key), uint32(left-key))
		}
		f = f[:h.FrameSize()]
		if p := HeaderSize + int(h.KeySize()); count && p+preludeSize(f[p+1]) <= len(f)-TailSize {
			n := uint32(0)
			for body := Frame(f).Body(); len(body) > 0; n++ {
				_, _, _, size, ok := splitRecord(body)
				if !ok {
					break
				}
				body = body[size:]
			}
			h.SetRecordCount(n)
		}
		Frame(f).Seal()
		pos += len(f)
	}
	return b
}

// addFrames seeds a target with every DATA frame of the vectors.
func addFrames(f *testing.F, add func(b []byte)) {
	for _, v := range dataVectors() {
		add(v.w.encode())
	}
	for _, v := range produceVectors() {
		if run, ok := v.w.(produce); ok {
			add(run.encode()[HeaderSize:])
		}
	}
	for _, r := range append(frameRejects(), recordRejects()...) {
		add(r.b)
	}
	add(sparseFrame(10, 0, 3, 9))
	add(bytes.Repeat([]byte{1}, 200))
}

var frameCodes = []Code{BadFrame, BadChecksum, TooLarge, Unsupported, Denied}

func requireOneOf(t *testing.T, err error, codes ...Code) {
	for _, c := range codes {
		if errors.Is(err, c) {
			return
		}
	}
	require.Fail(t, "unexpected refusal", "%v", err)
}

// walk iterates over a frame's records and returns how many there are.
func walk(t *testing.T, f Frame) (n int, err error) {
	it := Records(f)
	for it.Next() {
		r := &it.Record
		base, _ := f.Span() // differences, as base may be near the end of the numbers
		require.LessOrEqual(t, r.Offset-base+uint64(r.Span), uint64(f.Header().RecordCount()))
		require.Equal(t, *r, r.Clone())
		n++
		require.LessOrEqual(t, n, len(f))
	}
	require.False(t, it.Next(), "an iteration that is over stays over")
	return n, it.Err()
}

func FuzzRun(f *testing.F) {
	addFrames(f, func(b []byte) { f.Add(b, true, true); f.Add(b, false, false) })
	f.Fuzz(func(t *testing.T, b []byte, mend, count bool) {
		if mend {
			b = fit(b, count)
		}
		run, err := CheckRun(b, DefaultMessageBytes)
		if err != nil {
			requireOneOf(t, err, frameCodes...)
			require.Zero(t, run)
			return
		}
		require.Equal(t, b, run.Bytes)
		var frames uint32
		var records uint64
		for rest := b; len(rest) > 0; frames++ {
			n, err := CheckFrame(rest, DefaultMessageBytes)
			require.NoError(t, err)
			f := Frame(rest[:n])
			records += uint64(f.Header().RecordCount())
			requireStampable(t, f)
			rest = rest[n:]
		}
		require.Equal(t, frames, run.Frames)
		require.Equal(t, records, run.Records)
	})
}

// requireStampable: an accepted frame keeps its check when it is stamped, its records read
// as many as they are counted, and what the codec writes from them is the same frame.
func requireStampable(t *testing.T, f Frame) {
	new(Stamp{}).Apply(f)
	client := bytes.Clone(f)
	_, err := CheckFrame(f, DefaultMessageBytes)
	require.NoError(t, err)
	s := Stamp{Timestamp: at, Offset: 1 << 40, Index: 7, Term: 3, Flags: StampSegmentStart, SettledLag: 5}
	s.Apply(f)
	_, err = CheckStored(f, MaxDataFrame)
	require.NoError(t, err)
	require.Equal(t, s, Stamp{f.Header().Timestamp(), f.Header().Offset(), f.Index(), f.Term(), f.StampFlags(), f.SettledLag()})
	require.Equal(t, client[17:len(f)-TailSize], []byte(f[17:len(f)-TailSize]), "a stamp changes nothing else")
	n, err := walk(t, f)
	require.NoError(t, err)
	p := f.Prelude()
	switch {
	case p.Codec != 0:
		require.Zero(t, n)
	case p.Layout == LayoutOpaque:
		require.Equal(t, 1, n)
	default:
		require.Equal(t, int(f.Header().RecordCount()), n)
		b := Batch{Prelude: p}
		for it := Records(f); it.Next(); {
			require.NoError(t, b.Add(it.Record.Key, it.Record.Value, it.Record.Headers))
		}
		require.Equal(t, client, []byte(b.Seal()))
	}
}

func FuzzStored(f *testing.F) {
	addFrames(f, func(b []byte) { f.Add(b, true); f.Add(b, false) })
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend {
			b = fit(b, false)
		}
		n, err := CheckStored(b, MaxDataFrame)
		if err != nil {
			requireOneOf(t, err, BadFrame, TooLarge, BadChecksum)
			return
		}
		require.LessOrEqual(t, n, len(b))
		size, err := SizeStored(b, MaxDataFrame)
		require.NoError(t, err)
		require.Equal(t, n, size)
		f := Frame(b[:n:n])
		require.LessOrEqual(t, f.Settled(), f.Index())
		require.Len(t, f, HeaderSize+len(f.Key())+preludeSize(f.Prelude().Flags)+len(f.Body())+TailSize)
		require.NotEmpty(t, f.String())
		if _, err := walk(t, f); err != nil {
			require.ErrorIs(t, err, BadFrame)
		}
	})
}

func FuzzLegacyFrame(f *testing.F) {
	for _, v := range legacyVectors() {
		if frame, ok := v.w.(legacyFrame); ok {
			f.Add(frame.encode(), uint32(DefaultMessageBytes))
		}
	}
	for _, r := range legacyRejects() {
		f.Add(r.b, uint32(1<<31))
	}
	f.Fuzz(func(t *testing.T, b []byte, limit uint32) {
		limit = min(limit, MaxMessageBytes)
		n, err := LegacySize(b, limit)
		if err != nil {
			requireOneOf(t, err, BadFrame, TooLarge)
			return
		}
		if n == 0 {
			require.Less(t, len(b), HeaderSize)
			return
		}
		require.LessOrEqual(t, n, HeaderSize+int(limit))
		if n > len(b) {
			return
		}
		h := HeaderOf(b)
		key, body := b[HeaderSize:HeaderSize+h.KeySize()], b[HeaderSize+h.KeySize():n]
		opaque, err := AppendOpaque(nil, key, body, max(1, h.RecordCount()))
		require.NoError(t, err, "what the legacy side accepts can be stored")
		_, err = CheckFrame(opaque, limit)
		require.NoError(t, err)
		it := Records(opaque)
		require.True(t, it.Next())
		require.Equal(t, string(key), string(it.Record.Key))
		require.Equal(t, body, it.Record.Value)
	})
}

// pieces is a stream that arrives in pieces of the sizes given, over and over.
type pieces struct {
	b     []byte
	sizes []byte
	i     int
}

func (p *pieces) Read(dst []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := len(p.b)
	if len(p.sizes) > 0 {
		n = 1 + int(p.sizes[p.i%len(p.sizes)])
		p.i++
	}
	n = copy(dst[:min(n, len(dst))], p.b)
	p.b = p.b[n:]
	return n, nil
}

// readAll returns every frame of a stream and why it ended.
func readAll(t *testing.T, r *Reader) (frames [][]byte, err error) {
	for {
		f, err := r.Next()
		if err != nil {
			return frames, err
		}
		require.GreaterOrEqual(t, len(f), HeaderSize)
		require.Equal(t, len(f), cap(f))
		frames = append(frames, bytes.Clone(f))
	}
}

func FuzzReader(f *testing.F) {
	var session []byte
	for _, vectors := range [][]vector{sessionVectors(), streamVectors(), produceVectors()} {
		for _, v := range vectors {
			session = append(session, v.w.encode()...)
		}
	}
	f.Add(session, []byte{0})
	f.Add(session, []byte{28, 0, 255, 7})
	f.Add(session[:len(session)-1], []byte{200})
	f.Add(append(bytes.Clone(session), make([]byte, 40)...), []byte{99})
	for _, r := range headerRejects() {
		f.Add(append(bytes.Clone(session[:60]), r.b...), []byte{9})
	}
	f.Fuzz(func(t *testing.T, b, sizes []byte) {
		at := NewReader(&pieces{b: b})
		whole, wholeErr := readAll(t, at)
		cut := NewReader(&pieces{b: b, sizes: sizes})
		frames, err := readAll(t, cut)
		require.Equal(t, wholeErr, err, "how the bytes arrive changes nothing")
		require.Equal(t, whole, frames)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			requireOneOf(t, err, Unsupported, TooLarge, BadFrame)
		}
		size := 0
		for _, f := range frames {
			size += len(f)
		}
		require.Equal(t, b[:size], bytes.Join(frames, nil))
		require.Equal(t, len(b) == size, errors.Is(err, io.EOF))
		for _, r := range []*Reader{at, cut} {
			require.LessOrEqual(t, len(r.buf), max(readerMin, 2*len(b)), "the buffer grows with what arrives, not with what is announced")
		}
	})
}

func FuzzExplain(f *testing.F) {
	addFrames(f, func(b []byte) { f.Add(b, 3, true); f.Add(b, -1, false) })
	for _, vectors := range goldenVectors(f) {
		for _, v := range vectors {
			f.Add(v.w.encode(), 0, false)
		}
	}
	for _, r := range headerRejects() {
		f.Add(r.b, 0, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, records int, mend bool) {
		if mend {
			b = fit(b, false)
		}
		pos, parts, wrong := 0, 0, false
		for p := range Explain(b, records) {
			wrong = wrong || p.Wrong
			require.GreaterOrEqual(t, p.Pos, pos, "parts do not overlap")
			require.True(t, wrong || p.Pos == pos, "nor leave bytes out, unless something is wrong")
			if !p.Wrong {
				pos = p.Pos + len(p.Bytes)
			}
			require.Equal(t, string(b[p.Pos:p.Pos+len(p.Bytes)]), string(p.Bytes))
			parts++
			require.LessOrEqual(t, parts, len(b)+64)
		}
		require.NoError(t, Describe(io.Discard, Explain(b, records), Style{Color: mend}))
		if _, err := CheckFrame(b, DefaultMessageBytes); err == nil {
			require.False(t, wrong, "an accepted frame has nothing wrong")
		}
		for p := range ExplainLegacyFrame(b) {
			require.LessOrEqual(t, p.Pos+len(p.Bytes), len(b))
		}
	})
}
