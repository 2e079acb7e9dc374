//go:build linux

package healing

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// away is a manager whose keeper is not there for some starts.
type away struct {
	process.Manager
	starts atomic.Int64
}

func (a *away) Start(ctx context.Context, s process.Spec) (process.Process, error) {
	if a.starts.Add(-1) >= 0 {
		return nil, process.ErrUnavailable
	}
	return a.Manager.Start(ctx, s)
}

// A chat that is forgotten goes with what its workers have left, also when the server before
// has died meanwhile; copies of the user's versions, and checkpoints that nobody could remove,
// stay until it is old. So does one that was never cleared.
func TestAForgottenChatGoes(t *testing.T) {
	dir := t.TempDir()
	st := store{filepath.Join(dir, "healing")}
	const empty, copied, stuck, other = "20250101-000000-empty", "20250101-000001-copied", "20250101-000002-stuck", "20250101-000003-other"
	at := func(id string, more ...string) string {
		return filepath.Join(append([]string{st.chat(id)}, more...)...)
	}
	put := func(path string, data []byte) {
		t.Helper()
		proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		proctest.Must(t, os.WriteFile(path, data, 0o600))
	}
	for _, id := range []string{empty, copied, stuck, other} {
		o := &healer.Order{ID: id, Dir: at(id), Service: "another", Rules: &config.Service{}, Healer: &config.Healer{Wall: config.Duration(time.Minute)}, At: time.Now()}
		put(o.Path(healer.OrderFile), proctest.Value(json.Marshal(o))(t))
		put(at(id, healer.PointsDir, "1", "checkpoint.json"), []byte("{}"))
		if id != other {
			put(at(id, healer.ForgetFile), nil)
		}
	}
	keeps := at(copied, healer.PointsDir, "1", checkpoint.KeptDir, "1", "mine.txt")
	put(keeps, []byte("mine\n"))
	// A worker removes the checkpoint, but for one that cannot.
	program := []string{"sh", "-c", `echo "${2##*/}" >> ` + dir + `/ran; case $2 in *-stuck) exit 1;; esac; rm "$2/points/1/checkpoint.json"`, "sh"}
	m := &away{Manager: testkeeper.New(t)}
	m.starts.Store(5)
	s := play(t, dir, m, program...)
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	ran := func(id string) int {
		b, _ := os.ReadFile(filepath.Join(dir, "ran"))
		return strings.Count(string(b), id+"\n")
	}
	swept := func() {
		t.Helper()
		var done <-chan struct{}
		proctest.Must(t, s.in(t.Context(), func() { done = s.sweepTalks() }))
		<-done
	}
	swept()
	until(t, "the one that the server begins with is over, too", func() bool { return ran(stuck) == 2*forgetTries })
	if there(at(empty)) {
		t.Error("of one that keeps nothing there is more than nothing")
	}
	if !there(keeps) || there(at(copied, healer.OrderFile)) || hasPoints(at(copied)) {
		t.Errorf("of one with a copy there are %v", proctest.Value(os.ReadDir(at(copied)))(t))
	}
	if !hasPoints(at(stuck)) || !there(at(stuck, healer.OrderFile)) {
		t.Errorf("of one whose checkpoint no worker could remove there are %v", proctest.Value(os.ReadDir(at(stuck)))(t))
	}
	if ran(other) > 0 || !hasPoints(at(other)) {
		t.Error("one that nobody has cleared is touched")
	}
	if all := proctest.Value(s.Chats(t.Context()))(t); len(all) != 1 || all[0].GetId() != other {
		t.Errorf("shown are %v", all)
	}

	for n := range keepChats {
		proctest.Must(t, os.MkdirAll(at(fmt.Sprintf("20260101-%06d-newer", n)), 0o700))
	}
	c, _ := project(t, "app")
	s.is("app", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	var talk *talk
	var err error
	proctest.Must(t, s.in(t.Context(), func() { talk, err = s.newTalk() }))
	proctest.Must(t, err)
	swept()
	for _, id := range []string{copied, stuck, other} {
		if there(at(id)) {
			t.Errorf("%s is old, and there", id)
		}
	}
	if ran(other) != 1 {
		t.Errorf("%d workers have removed the checkpoint of an old one", ran(other))
	}
	if got := len(st.chats()); got != keepChats || !there(talk.order.Dir) || talk.state().Phase != chat.Idle {
		t.Errorf("there are %d chats; the new one: %v", got, there(talk.order.Dir))
	}
}
