package distant

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// stored is a session as it lies on disk.
type stored struct {
	id   uint32
	used time.Time
}

// stored lists the sessions on disk, the one that was used last at the end.
func (n *Native) stored() ([]stored, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	var out []stored
	for _, e := range entries {
		b, err := hex.DecodeString(e.Name())
		if err != nil || len(b) != 4 || !e.IsDir() {
			continue
		}
		out = append(out, stored{binary.BigEndian.Uint32(b), lastUse(filepath.Join(n.dir, e.Name()))})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].used.Before(out[j].used) })
	return out, nil
}

// lastUse is when something was last written in a directory: a connected
// session writes every few seconds.
func lastUse(dir string) time.Time {
	var last time.Time
	entries, err := os.ReadDir(dir)
	if err != nil {
		return last
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// sweep removes the sessions that waited too long for their clients.
func (n *Native) sweep() error {
	all, err := n.stored()
	if err != nil {
		return err
	}
	for _, s := range all {
		if time.Since(s.used) > n.keep {
			n.remove(s.id)
		}
	}
	return nil
}

// makeRoom removes the sessions that waited longest while there are too many.
func (n *Native) makeRoom() {
	all, err := n.stored()
	if err != nil {
		return // making the next one will say why
	}
	for _, s := range all[:max(0, len(all)-maxSessions+1)] {
		n.remove(s.id)
	}
}

func (n *Native) remove(id uint32) {
	n.mu.Lock()
	s := n.sessions[id]
	n.mu.Unlock()
	if s != nil {
		s.hangUp()
		n.drop(s)
		return
	}
	if err := os.RemoveAll(n.sessionDir(id)); err != nil {
		n.face.log.Warn("session not removed", slog.String("face", "distant"), slog.Any("err", err))
	}
}

func (n *Native) sweepNowAndThen(ctx context.Context) {
	tick := time.NewTicker(max(n.keep/24, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := n.sweep(); err != nil {
				n.face.log.Warn("sessions not looked through", slog.String("face", "distant"), slog.Any("err", err))
			}
		case <-n.ctx.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
