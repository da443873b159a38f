package protocol

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReaderTellsAnEndFromATornFrame(t *testing.T) {
	f := sealed(t, 1, 10)
	frames, err := readAll(t, NewReader(bytes.NewReader(f)))
	require.Equal(t, io.EOF, err)
	require.Len(t, frames, 1)
	for _, n := range []int{1, HeaderSize - 1, HeaderSize, len(f) - 1} {
		_, err = NewReader(bytes.NewReader(f[:n])).Next()
		require.Equal(t, io.ErrUnexpectedEOF, err, "%d bytes", n)
	}
	_, err = NewReader(bytes.NewReader(nil)).Next()
	require.Equal(t, io.EOF, err)
}

// failing gives bytes, then an error.
type failing struct {
	b   []byte
	err error
}

func (f *failing) Read(dst []byte) (int, error) {
	if len(f.b) == 0 {
		return 0, f.err
	}
	n := copy(dst, f.b)
	f.b = f.b[n:]
	return n, nil
}

func TestReaderHandsTheStreamsErrorOn(t *testing.T) {
	broken := errors.New("reset by peer")
	_, err := NewReader(&failing{err: broken}).Next()
	require.Equal(t, broken, err)
	_, err = NewReader(&failing{b: make([]byte, 0), err: nil}).Next()
	require.Equal(t, io.ErrNoProgress, err)
	r := NewReader(&failing{b: append(head(0x11, 0, 0, 0), 0), err: broken})
	_, err = r.Next()
	require.NoError(t, err)
	require.Equal(t, 1, r.Buffered())
	_, err = r.Next()
	require.ErrorIs(t, err, Unsupported, "one byte is enough to know that no frame follows")
}

func TestReaderRefusesBeforeItMakesRoom(t *testing.T) {
	r := NewReader(bytes.NewReader(append(head(0x01, 0, MaxDataFrame, 1), make([]byte, 100)...)))
	_, err := r.Next()
	require.ErrorIs(t, err, TooLarge)
	require.Len(t, r.buf, readerMin)
	r = NewReader(bytes.NewReader(head(0x11, 0, MaxFrameUnauthenticated, 0)))
	r.Bounds = Bounds{Control: MaxFrameUnauthenticated, Data: MaxFrameUnauthenticated}
	_, err = r.Next()
	require.ErrorIs(t, err, TooLarge)
	require.Equal(t, uint64(MaxFrameUnauthenticated), AsError(err).Limit)
	r = NewReader(bytes.NewReader(sealed(t, 1, MaxFrameUnauthenticated)))
	r.Bounds = Bounds{Data: MaxFrameUnauthenticated}
	_, err = r.Next()
	require.ErrorIs(t, err, TooLarge)
}

func TestReaderTakesAFrameLargerThanItsLargestBuffer(t *testing.T) {
	small := sealed(t, 1, 10)
	large := sealed(t, 1, readerMax+1000)
	var stream []byte
	for range 3 {
		stream = append(append(stream, small...), large...)
	}
	r := NewReader(bytes.NewReader(stream))
	frames, err := readAll(t, r)
	require.Equal(t, io.EOF, err)
	require.Len(t, frames, 6)
	require.Equal(t, stream, bytes.Join(frames, nil))
	require.Less(t, len(r.buf), 2*readerMax)
}

func TestReaderGrowsWithWhatArrivesNotWithWhatIsAnnounced(t *testing.T) {
	for _, arrived := range []int{100, readerMin, 1 << 20, readerMax, readerMax + 1} {
		r := NewReader(bytes.NewReader(append(head(0x01, 0, MaxDataFrame-HeaderSize, 1), make([]byte, arrived)...)))
		_, err := r.Next()
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.LessOrEqual(t, len(r.buf), max(readerMin, 2*(HeaderSize+arrived)), "%d bytes arrived", arrived)
	}
}

// endless repeats a stretch of whole frames for ever, in reads of up to most bytes.
type endless struct {
	b    []byte
	pos  int
	most int
}

func (e *endless) Read(dst []byte) (int, error) {
	n := copy(dst[:min(e.most, len(dst))], e.b[e.pos:])
	e.pos = (e.pos + n) % len(e.b)
	return n, nil
}

func TestNothingIsAllocatedPerFrameReadOrPerHeaderWritten(t *testing.T) {
	for _, most := range []int{100, 1500, 1 << 20} {
		r := NewReader(&endless{b: append(append([]byte{}, sealed(t, 100, 100)...), vectorNamed(t, "ack")...), most: most})
		next := func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			next()
		}
		require.Zero(t, testing.AllocsPerRun(1000, next), "reads of %d bytes", most)
	}
	var h Header
	puts := map[string]func(){
		"PutRequest":  func() { h.PutRequest(OpOpen, 1, 2, 3, 4, 5, 6) },
		"PutResponse": func() { h.PutResponse(OpOpen, OK, 1, 2, 3, 4) },
		"PutProduce":  func() { h.PutProduce(LevelDurable, 1, 2, 3) },
		"PutAck":      func() { h.PutAck(LevelDurable, OK, 1, 2, 3, 0) },
		"PutDeliver":  func() { h.PutDeliver(1, DeliverEnd, 2, 3, 4) },
		"PutCredit":   func() { h.PutCredit(1, 2) },
		"PutGoAway":   func() { h.PutGoAway(ShuttingDown, 1, 2, 0) },
		"PutPing":     func() { h.PutPing(MagicPong, 1, 2) },
		"PutLegacy":   func() { h.PutLegacy(1, 2, 3, 4, 5) },
	}
	for name, put := range puts {
		require.Zero(t, testing.AllocsPerRun(100, put), name)
	}
	b := vectorNamed(t, "legacy-frame")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := LegacySize(b, DefaultMessageBytes); err != nil {
			t.Fatal(err)
		}
	}))
	subscribe := Subscribe{Subscription: 1, From: Start, Credit: 1}
	dst := make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() { dst = subscribe.AppendTo(dst[:0]) }))
}

func TestHeadersThatAreReusedKeepNothingOfTheLastFrame(t *testing.T) {
	var dirty Header
	for i := range dirty {
		dirty[i] = 0xFF
	}
	for name, put := range map[string]func(h *Header){
		"request": func(h *Header) { h.PutRequest(OpOpen, 0, 0, 0, 0, 0, 0) }, "response": func(h *Header) { h.PutResponse(OpOpen, OK, 0, 0, 0, 0) },
		"produce": func(h *Header) { h.PutProduce(0, 0, 0, 0) }, "ack": func(h *Header) { h.PutAck(0, OK, 0, 0, 0, 0) },
		"deliver": func(h *Header) { h.PutDeliver(0, 0, 0, 0, 0) }, "credit": func(h *Header) { h.PutCredit(0, 0) },
		"goaway": func(h *Header) { h.PutGoAway(OK, 0, 0, 0) }, "ping": func(h *Header) { h.PutPing(MagicPing, 0, 0) }, "legacy": func(h *Header) { h.PutLegacy(0, 0, 0, 0, 0) },
	} {
		h, clean := dirty, Header{}
		put(&h)
		put(&clean)
		require.Equal(t, clean, h, name)
	}
}
