package langsmith

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/netpipe"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// The tunnel's own words (§3): each stream begins with a version and a port,
// and is answered with one byte.
const (
	tunnelVersion = 1

	tunnelOK         = 0
	tunnelNotAllowed = 1
	tunnelDialFailed = 2
	tunnelBadVersion = 3

	tunnelDialTime   = 10 * time.Second
	tunnelHeaderTime = 30 * time.Second
	// tunnelStreams bounds the streams of one tunnel.
	tunnelStreams = 1024
	// tunnelWindow is what a stream may hold of what its client has sent: what a client of
	// yamux is let send before it is read, in bytes.
	tunnelWindow = 256 << 10
)

// tunnel carries TCP connections into the box: GET /tunnel.
func (f *Face) tunnel(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	ws, conn, ok := f.upgrade(w, r)
	if !ok {
		return nil
	}
	run := func() {
		defer f.ended(conn)
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		held := f.budget.Charge(budget.Sandbox(info.ID))
		defer held.Release()
		serveTunnel(ctx, websocket.NetConn(context.Background(), ws, websocket.MessageBinary), box, held, f.log)
		closeNow(ws, conn, websocket.StatusGoingAway, "the tunnel has ended")
	}
	if !f.begin(conn, run) {
		closeNow(ws, conn, websocket.StatusGoingAway, errStopping.Error())
	}
	return nil
}

// serveTunnel runs the yamux session until the client ends it or ctx does.
func serveTunnel(ctx context.Context, conn net.Conn, box driver.Sandbox, held *budget.Charge, log *slog.Logger) {
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	cfg.AcceptBacklog = 256
	cfg.MaxStreamWindowSize = tunnelWindow
	session, err := yamux.Server(conn, cfg)
	if err != nil {
		log.Error("tunnel not opened", "err", err) // a wrong configuration of ours
		return
	}
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer session.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the programs at the other ends may be silent for ever
	streams := make(chan struct{}, tunnelStreams)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		select {
		case streams <- struct{}{}:
		default:
			stream.Close()
			continue
		}
		if held.Add(tunnelWindow) != nil {
			<-streams
			stream.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-streams }()
			defer held.Give(tunnelWindow)
			defer stream.Close()
			defer func() {
				if p := recover(); p != nil {
					log.Error("tunnel panicked", "panic", p, "stack", string(debug.Stack()))
				}
			}()
			serveStream(ctx, stream, box)
		})
	}
}

// serveStream connects one stream to its port.
func serveStream(ctx context.Context, stream net.Conn, box driver.Sandbox) {
	var head [3]byte
	if stream.SetReadDeadline(time.Now().Add(tunnelHeaderTime)) != nil {
		return
	}
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return
	}
	if stream.SetReadDeadline(time.Time{}) != nil {
		return
	}
	target, answer := dialTunnel(ctx, head, box)
	if target != nil {
		defer target.Close()
		defer context.AfterFunc(ctx, func() { target.Close() })()
	}
	if _, err := stream.Write([]byte{answer}); err != nil || target == nil {
		return
	}
	netpipe.Join(stream, target)
}

func dialTunnel(ctx context.Context, head [3]byte, box driver.Sandbox) (net.Conn, byte) {
	if head[0] != tunnelVersion {
		return nil, tunnelBadVersion
	}
	port := binary.BigEndian.Uint16(head[1:])
	if port == 0 {
		return nil, tunnelNotAllowed
	}
	dialing, cancel := context.WithTimeout(ctx, tunnelDialTime)
	defer cancel()
	c, err := box.Dial(dialing, int(port))
	if err != nil {
		return nil, tunnelDialFailed
	}
	return c, tunnelOK
}
