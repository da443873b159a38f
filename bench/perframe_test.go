package bench

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startPerFrame runs the broker as a process over dir. A test that does not get to
// its Stop ends the process with its context.
func startPerFrame(t testing.TB, dir string) *PerFrame {
	t.Helper()
	p, err := StartPerFrame(t.Context(), os.Args[0], perFrameVerb, dir)
	require.NoError(t, err)
	return p
}

// servePerFrame runs the broker in this process and returns its address and a stop
// that returns what it returned.
func servePerFrame(t testing.TB, dir string) (addr string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	addrs, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- PerFrameServe(ctx, "127.0.0.1:0", dir, func(a string) { addrs <- a }) }()
	select {
	case addr = <-addrs:
	case err := <-done:
		t.Fatal(err)
	}
	return addr, func() error {
		cancel()
		return <-done
	}
}

func TestPerFrameKeepsAndServesEveryFrame(t *testing.T) {
	for name, shape := range map[string]PerFrameShape{
		"pipelined":        {Producers: 3, Frames: 1000, Records: 10, Size: 100},
		"lockstep":         {Producers: 2, Frames: 101, Records: 3, Size: 16, Window: 1},
		"windowed":         {Producers: 1, Frames: 500, Records: 1, Size: 100, Window: 7},
		"largest frame":    {Producers: 1, Frames: 5, Records: 1, Size: PerFrameMaxFrame - 8},
		"fewer than asked": {Producers: 5, Frames: 2, Records: 1, Size: 16},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := startPerFrame(t, dir)
			r, err := p.Load(t.Context(), shape)
			require.NoError(t, err)
			messages := shape.Frames * int64(shape.Records)
			require.Equal(t, shape.Frames, r.Frames)
			require.Equal(t, messages, r.Messages)
			require.Positive(t, r.Rate())
			require.Positive(t, r.Server.CPU)
			require.Positive(t, r.Server.RSSPeak)

			d, err := p.Drain(t.Context(), shape.Frames)
			require.NoError(t, err)
			require.Equal(t, shape.Frames, d.Frames)
			require.Equal(t, messages, d.Messages)
			require.Equal(t, r.Bytes, d.Bytes)
			require.NoError(t, p.Stop())
			requirePerFrameLog(t, dir, shape)
		})
	}
}

// requirePerFrameLog checks every byte that matters in the files of a broker.
func requirePerFrameLog(t *testing.T, dir string, shape PerFrameShape) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	index, err := os.ReadFile(filepath.Join(dir, "index"))
	require.NoError(t, err)
	require.Len(t, log, int(shape.Frames)*shape.frameSize())
	require.Len(t, index, int(shape.Frames)*perFrameEntry)
	payloads := payloadsOf(t, 1, shape.Size)
	for i := range int(shape.Frames) {
		pos := i * shape.frameSize()
		frame, entry := log[pos:pos+shape.frameSize()], index[i*perFrameEntry:]
		require.Equal(t, uint64(i*shape.Records), binary.BigEndian.Uint64(frame[9:]))
		require.Equal(t, uint64(i*shape.Records), binary.BigEndian.Uint64(entry))
		require.Equal(t, uint64(pos), binary.BigEndian.Uint64(entry[8:]))
		for record := range shape.Records {
			value := frame[perFrameHeader+record*(8+shape.Size)+8:][:shape.Size]
			_, _, ok := payloads.Check(value)
			require.True(t, ok, "frame %d record %d", i, record)
		}
	}
}

func TestPerFrameCostsThreeWritesInAndTwoReadsOut(t *testing.T) {
	const frames = 2000
	p := startPerFrame(t, t.TempDir())
	start, err := ReadCalls(p.PID())
	require.NoError(t, err)
	_, err = p.Load(t.Context(), PerFrameShape{Producers: 2, Frames: frames, Records: 10, Size: 100})
	require.NoError(t, err)
	loaded, err := ReadCalls(p.PID())
	require.NoError(t, err)
	require.GreaterOrEqual(t, loaded.Writes-start.Writes, int64(3*frames), "log, index and ack")
	require.GreaterOrEqual(t, loaded.Reads-start.Reads, int64(2*frames), "header and payload from the socket")

	_, err = p.Drain(t.Context(), frames)
	require.NoError(t, err)
	drained, err := ReadCalls(p.PID())
	require.NoError(t, err)
	require.GreaterOrEqual(t, drained.Reads-loaded.Reads, int64(2*frames), "header and payload from the log")
	require.GreaterOrEqual(t, drained.Writes-loaded.Writes, int64(frames))
	require.NoError(t, p.Stop())
}

func TestPerFrameRefusesHostileFramesAndServesTheNext(t *testing.T) {
	dir := t.TempDir()
	addr, stop := servePerFrame(t, dir)
	header := func(change func(h []byte)) []byte {
		h := make([]byte, perFrameHeader)
		h[0] = perFrameMagic
		binary.BigEndian.PutUint32(h[25:], 1)
		change(h)
		return h
	}
	for name, h := range map[string][]byte{
		"magic":         header(func(h []byte) { h[0] = 2 }),
		"large payload": header(func(h []byte) { binary.BigEndian.PutUint32(h[21:], PerFrameMaxFrame+1) }),
		"sum overflows": header(func(h []byte) { copy(h[17:], "\xff\xff\xff\xff\xff\xff\xff\xff") }),
		"no records":    header(func(h []byte) { h[28] = 0 }),
	} {
		conn, err := dialPerFrame(t.Context(), addr, perFrameProduce)
		require.NoError(t, err)
		_, err = conn.Write(h)
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err, name)
		require.Equal(t, "\xff\x00\x00\x00\x00\x00\x00\x00\x00", string(answer), name)
		require.NoError(t, conn.Close())
	}
	for _, start := range []string{"", "X", "P", "P\x01\x00", "P" + string(header(func(h []byte) { h[24] = 9 })) + "short"} {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(conn, start)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	shape := PerFrameShape{Producers: 1, Frames: 3, Records: 2, Size: 20}
	_, err := PerFrameLoad(t.Context(), addr, shape)
	require.NoError(t, err)
	require.NoError(t, stop())
	requirePerFrameLog(t, dir, shape) // nothing of the hostile frames was appended
}

func TestPerFrameConsumersAtTheEndLeaveWithTheirClient(t *testing.T) {
	addr, stop := servePerFrame(t, t.TempDir())
	// Three times as many as may be connected at once: each must make room.
	for range 3 * PerFrameMaxConns {
		conn, err := dialPerFrame(t.Context(), addr, perFrameConsume)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	_, err := PerFrameLoad(t.Context(), addr, PerFrameShape{Producers: 1, Frames: 1, Records: 1, Size: 16})
	require.NoError(t, err)
	require.NoError(t, stop())
}

func TestPerFrameDrainGetsFramesYetToCome(t *testing.T) {
	addr, stop := servePerFrame(t, t.TempDir())
	type drained struct {
		r   PerFrameReport
		err error
	}
	done := make(chan drained, 1)
	go func() {
		r, err := PerFrameDrain(t.Context(), addr, 400)
		done <- drained{r, err}
	}()
	for range 4 {
		_, err := PerFrameLoad(t.Context(), addr, PerFrameShape{Producers: 2, Frames: 100, Records: 5, Size: 50})
		require.NoError(t, err)
	}
	d := <-done
	require.NoError(t, d.err)
	require.Equal(t, int64(400), d.r.Frames)
	require.Equal(t, int64(2000), d.r.Messages)
	require.NoError(t, stop())
}

func TestPerFrameServeStopsWithClientsConnected(t *testing.T) {
	addr, stop := servePerFrame(t, t.TempDir())
	failed := make(chan error, 1)
	go func() {
		_, err := PerFrameDrain(t.Context(), addr, 1)
		failed <- err
	}()
	idle, err := dialPerFrame(t.Context(), addr, perFrameProduce)
	require.NoError(t, err)
	defer idle.Close()
	_, err = PerFrameLoad(t.Context(), addr, PerFrameShape{Producers: 1, Frames: 1, Records: 1, Size: 16})
	require.NoError(t, err)
	require.NoError(t, <-failed)
	go func() {
		_, err := PerFrameDrain(t.Context(), addr, 2)
		failed <- err
	}()
	require.NoError(t, stop())
	require.Error(t, <-failed, "the second frame never came")
}

func TestPerFrameClientsStopWithTheirContext(t *testing.T) {
	addr, stop := servePerFrame(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := PerFrameDrain(ctx, addr, 1)
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	// An accepted connection that answers nothing: the load waits for its window.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := PerFrameLoad(ctx, silent.Addr().String(), PerFrameShape{Producers: 2, Frames: 10, Records: 1, Size: 16, Window: 1})
		done <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, stop())
}

func TestPerFrameLoadNamesARefusalAndAWrongAck(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"refused":   {"\xff\x00\x00\x00\x00\x00\x00\x00\x00", ErrRefused},
		"backwards": {"\x00\x00\x00\x00\x00\x00\x00\x00\x05" + "\x00\x00\x00\x00\x00\x00\x00\x00\x05", ErrBadFrame},
		"cut":       {"\x00\x00\x00", io.EOF},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer closeQuietly(conn)
			if _, err := io.WriteString(conn, c.answer); err != nil {
				return
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				return
			}
			// Until the load hangs up, which it may do with a reset.
			if _, err := io.Copy(io.Discard, conn); err != nil {
				return
			}
		}()
		_, err = PerFrameLoad(t.Context(), l.Addr().String(), PerFrameShape{Producers: 1, Frames: 10, Records: 1, Size: 16})
		require.ErrorIs(t, err, c.want, name)
		<-served
		require.NoError(t, l.Close())
	}
}

func TestPerFrameShapeBoundsAreRefused(t *testing.T) {
	good := PerFrameShape{Producers: 1, Frames: 1, Records: 1, Size: 16}
	require.NoError(t, good.check())
	for name, change := range map[string]func(*PerFrameShape){
		"no producers":   func(s *PerFrameShape) { s.Producers = 0 },
		"many producers": func(s *PerFrameShape) { s.Producers = PerFrameMaxConns },
		"no frames":      func(s *PerFrameShape) { s.Frames = 0 },
		"many frames":    func(s *PerFrameShape) { s.Frames = 1<<40 + 1 },
		"no records":     func(s *PerFrameShape) { s.Records = 0 },
		"many records":   func(s *PerFrameShape) { s.Records = PerFrameMaxFrame/24 + 1 },
		"small values":   func(s *PerFrameShape) { s.Size = MinPayload - 1 },
		"large values":   func(s *PerFrameShape) { s.Size = PerFrameMaxFrame - 7 },
		"window":         func(s *PerFrameShape) { s.Window = -1 },
	} {
		s := good
		change(&s)
		_, err := PerFrameLoad(t.Context(), "127.0.0.1:1", s)
		require.ErrorIs(t, err, ErrOutOfRange, name)
	}
}

func TestPerFrameWillNotMixWithAnOlderLog(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o600))
	err := PerFrameServe(t.Context(), "127.0.0.1:0", dir, func(string) {})
	require.ErrorIs(t, err, os.ErrExist)
}

func TestPerFrameStopsAtAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	l, err := openPerFrameLog(dir)
	require.NoError(t, err)
	require.NoError(t, l.index.Close())
	header := make([]byte, perFrameHeader)
	_, err = l.append(header, nil)
	require.ErrorIs(t, err, os.ErrClosed)
	_, again := l.append(header, nil)
	require.Equal(t, err, again, "a failed write is final")
	require.NoError(t, l.data.Close())
}

func TestStartPerFrameReportsAProcessThatDoesNotServe(t *testing.T) {
	_, err := StartPerFrame(t.Context(), os.Args[0], impostorVerb)
	require.ErrorContains(t, err, "announced no address")
	_, err = StartPerFrame(t.Context(), os.Args[0], perFrameVerb, filepath.Join(t.TempDir(), "absent"))
	require.ErrorContains(t, err, "announced no address")
	_, err = StartPerFrame(t.Context())
	require.ErrorIs(t, err, ErrOutOfRange)
	_, err = StartPerFrame(t.Context(), filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPerFrameProcessEndsWithItsParent(t *testing.T) {
	in, parent := io.Pipe()
	out := &addrWriter{wrote: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- PerFrameMain(t.TempDir(), in, out) }()
	<-out.wrote
	require.NoError(t, parent.Close())
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("still serving after its input ended")
	}
}

type addrWriter struct{ wrote chan struct{} }

func (w *addrWriter) Write(b []byte) (int, error) {
	close(w.wrote)
	return len(b), nil
}

// The yardstick in its two shapes. Compare broker CPU, not wall clock: client and
// broker share the cores.
func benchmarkPerFrame(b *testing.B, records int) {
	p := startPerFrame(b, b.TempDir())
	shape := PerFrameShape{Producers: 10, Frames: int64(b.N), Records: records, Size: 100}
	b.ResetTimer()
	r, err := p.Load(b.Context(), shape)
	require.NoError(b, err)
	b.ReportMetric(r.Rate(), "msg/s")
	b.ReportMetric(r.Server.CPU.Seconds()*1e9/float64(r.Messages), "broker-cpu-ns/msg")
	d, err := p.Drain(b.Context(), shape.Frames)
	require.NoError(b, err)
	b.ReportMetric(d.Rate(), "served-msg/s")
	b.ReportMetric(d.Server.CPU.Seconds()*1e9/float64(d.Messages), "serve-cpu-ns/msg")
	require.NoError(b, p.Stop())
}

func BenchmarkPerFrame1Record(b *testing.B)    { benchmarkPerFrame(b, 1) }
func BenchmarkPerFrame100Records(b *testing.B) { benchmarkPerFrame(b, 100) }

func FuzzPerFrameWalk(f *testing.F) {
	shape := PerFrameShape{Producers: 1, Frames: 2, Records: 1, Size: 16}
	runs, err := perFrameRuns(shape)
	require.NoError(f, err)
	two := runs[0][:2*shape.frameSize()]
	two[shape.frameSize()+16] = 1 // offset of the second
	f.Add(two)
	f.Add(two[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		var r PerFrameReport
		used, err := r.walk(b, 1<<40)
		require.LessOrEqual(t, used, len(b))
		require.Equal(t, int64(used), r.Bytes)
		require.LessOrEqual(t, r.Frames*perFrameHeader, r.Bytes)
		if err != nil {
			require.ErrorIs(t, err, ErrBadFrame)
		}
	})
}
