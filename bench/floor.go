//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// floorArg makes this program the floor: it prints its URL and serves until its
// stdin ends.
const floorArg = "workload-floor"

// floor answers the calls of the ordinary client from memory, by net/http. It
// runs no process and keeps nothing, so it shows what HTTP and the client take:
// no server over net/http can be faster for this client.
type floor struct {
	last  atomic.Uint64
	procs sync.Map // pid → *floorProc
}

// floorProc stands for a process.
type floorProc struct {
	taken atomic.Int64 // bytes of input
	lines chan []byte  // what the terminal echoes
	ended chan struct{}
	once  sync.Once
}

func (p *floorProc) end() { p.once.Do(func() { close(p.ended) }) }

func runFloor() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: floor:", err)
		return 1
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the end of the parent ends it, too
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, "bench: floor:", http.Serve(l, new(floor)))
	return 1
}

// startFloor starts the floor for the ordinary client.
func startFloor(ctx context.Context) (t *ordinary, stop func()) {
	url, end := startFloorURL(ctx)
	t = newOrdinary(url)
	return t, func() {
		t.hc.CloseIdleConnections()
		end()
	}
}

// startFloorURL starts this program once more, as the floor.
func startFloorURL(ctx context.Context) (url string, stop func()) {
	cmd := exec.CommandContext(ctx, must(os.Executable()), floorArg)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		in.Close()
		check(errors.Join(err, cmd.Wait()))
	}
	return url[:len(url)-1], func() { check(errors.Join(in.Close(), cmd.Wait())) }
}

func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	switch path.Base(r.URL.Path) {
	case "Start":
		f.start(w, r)
	case "Connect":
		if p := f.find(r.Body, envelopeSize); p != nil {
			send(w, startEvent(1))
			<-p.ended
			send(w, endEvent(false), endOfStream)
		}
	case "SendInput":
		b := floorBuffers.Get().(*[]byte)
		defer floorBuffers.Put(b)
		if n, err := io.ReadFull(r.Body, (*b)[:min(int64(len(*b)), r.ContentLength)]); err == nil {
			f.sendInput((*b)[:n])
		}
	case "StreamInput":
		f.streamInput(r.Body)
		send(w, envelope(nil, nil), endOfStream)
	case "CloseStdin", "SendSignal":
		if p := f.find(r.Body, 0); p != nil {
			p.end()
		}
	default:
		if strings.HasPrefix(r.URL.Path, "/sandboxes/") || strings.HasPrefix(r.URL.Path, "/v2/sandboxes") {
			f.sandboxes(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

const (
	envelopeSize = 5
	floorPiece   = 128 << 10 // bytes of output in a message
)

var floorBuffers = sync.Pool{New: func() any { b := make([]byte, 1<<20); return &b }}

// start plays the program that is asked for.
func (f *floor) start(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	asJSON := r.Header.Get("Content-Type") == "application/connect+json"
	if err != nil || len(body) < envelopeSize {
		return
	}
	name, args := started(body[envelopeSize:], asJSON)
	p := &floorProc{lines: make(chan []byte, 16), ended: make(chan struct{})}
	pid := f.last.Add(1)
	f.procs.Store(pid, p)
	started, piece, end := startEvent(pid), dataEvent, endEvent(true)
	if asJSON {
		started = envelope(nil, fmt.Appendf(nil, `{"event":{"start":{"pid":%d}}}`, pid))
		end = envelope(nil, []byte(`{"event":{"end":{"exited":true,"status":"exit status 0"}}}`))
		piece = func(_ protowire.Number, b []byte) []byte {
			return envelope(nil, fmt.Appendf(nil, `{"event":{"data":{"stdout":"%s"}}}`, base64.StdEncoding.EncodeToString(b)))
		}
	}
	switch path.Base(name) {
	case "true":
		_, _ = w.Write(started)
	case "sleep":
		send(w, started)
		return
	case "bash": // echo benchmark
		_, _ = w.Write(started)
		_, _ = w.Write(piece(1, []byte("benchmark\n")))
	case "head":
		send(w, started)
		whole := piece(1, make([]byte, floorPiece)) // made once: this is to cost nothing
		n, _ := strconv.ParseInt(args[1], 10, 64)
		for ; n > 0 && r.Context().Err() == nil; n -= floorPiece {
			_, _ = w.Write(whole)
		}
	case "wc":
		send(w, started)
		<-p.ended
		_, _ = w.Write(piece(1, strconv.AppendInt(nil, p.taken.Load(), 10)))
	case "sh":
		send(w, started, piece(3, []byte("ready\r\n")))
		for over := false; !over; {
			select {
			case line := <-p.lines:
				send(w, piece(3, line))
			case <-p.ended:
				over = true
			}
		}
	}
	send(w, end, endOfStream)
}

// started returns the program of a Start request.
func started(b []byte, asJSON bool) (name string, args []string) {
	if asJSON {
		var req struct {
			Process struct {
				Cmd  string
				Args []string
			}
		}
		_ = json.Unmarshal(b, &req)
		return req.Process.Cmd, req.Process.Args
	}
	_ = fields(b, func(n protowire.Number, _ uint64, v []byte) {
		if n == 1 {
			_ = fields(v, func(n protowire.Number, _ uint64, v []byte) {
				if n == 1 {
					name = string(v)
				} else if n == 2 {
					args = append(args, string(v))
				}
			})
		}
	})
	return name, args
}

func (f *floor) sendInput(b []byte) {
	var p *floorProc
	_ = fields(b, func(n protowire.Number, _ uint64, v []byte) {
		switch n {
		case 1:
			p = f.selected(v)
		case 2:
			_ = fields(v, func(kind protowire.Number, _ uint64, data []byte) {
				if p == nil {
					return
				}
				p.taken.Add(int64(len(data)))
				if kind == 2 && len(data) > 0 { // a terminal
					p.lines <- append(append([]byte(nil), data[:len(data)-1]...), "\r\n"...)
				}
			})
		}
	})
}

func (f *floor) streamInput(body io.Reader) {
	b := floorBuffers.Get().(*[]byte)
	defer floorBuffers.Put(b)
	var p *floorProc
	for {
		var head [envelopeSize]byte
		if _, err := io.ReadFull(body, head[:]); err != nil {
			return
		}
		m := (*b)[:min(len(*b), int(binary.BigEndian.Uint32(head[1:])))]
		if _, err := io.ReadFull(body, m); err != nil {
			return
		}
		_ = fields(m, func(n protowire.Number, _ uint64, v []byte) {
			_ = fields(v, func(_ protowire.Number, _ uint64, v []byte) {
				if n == 1 {
					p = f.selected(v)
					return
				}
				_ = fields(v, func(_ protowire.Number, _ uint64, data []byte) {
					if p != nil {
						p.taken.Add(int64(len(data)))
					}
				})
			})
		})
	}
}

// find returns the process that the first field of a body selects.
func (f *floor) find(body io.Reader, skip int) (p *floorProc) {
	b, err := io.ReadAll(body)
	if err != nil || len(b) < skip {
		return nil
	}
	_ = fields(b[skip:], func(n protowire.Number, _ uint64, v []byte) {
		if n == 1 {
			p = f.selected(v)
		}
	})
	return p
}

func (f *floor) selected(selector []byte) (p *floorProc) {
	_ = fields(selector, func(_ protowire.Number, pid uint64, _ []byte) {
		if v, ok := f.procs.Load(pid); ok {
			p = v.(*floorProc)
		}
	})
	return p
}

// send writes messages and sends them at once.
func send(w http.ResponseWriter, messages ...[]byte) {
	for _, m := range messages {
		_, _ = w.Write(m)
	}
	w.(http.Flusher).Flush()
}

var endOfStream = append([]byte{2, 0, 0, 0, 2}, "{}"...)

func floorEvent(kind protowire.Number, body []byte) []byte {
	return envelope(nil, msg(nil, 1, msg(nil, kind, body)))
}

func startEvent(pid uint64) []byte { return floorEvent(1, varint(nil, 1, pid)) }

func dataEvent(kind protowire.Number, b []byte) []byte { return floorEvent(2, msg(nil, kind, b)) }

func endEvent(exited bool) []byte {
	if !exited {
		return floorEvent(3, str(nil, 3, "signal: killed"))
	}
	return floorEvent(3, str(varint(nil, 2, 1), 3, "exit status 0"))
}
