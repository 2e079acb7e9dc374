package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestLogLinesForPeople(t *testing.T) {
	var b strings.Builder
	log := NewLogger(&b, true, slog.LevelInfo)
	log.Debug("not shown")
	log.With("id", "a").WithGroup("exit").Warn("proc exited", "code", 3, slog.Group("usage", "rss", 7), "err", errors.New("two words"), "esc", "\x1b[2J")
	line := b.String()
	if strings.Count(line, "\n") != 1 {
		t.Fatalf("got %q; want one line", line)
	}
	_, rest, _ := strings.Cut(line, " ")
	if want := `WARN proc exited id=a exit.code=3 exit.usage.rss=7 exit.err="two words" exit.esc="\x1b[2J"` + "\n"; rest != want {
		t.Errorf("got %q; want %q", rest, want)
	}
}

func TestLogLinesForPrograms(t *testing.T) {
	var b strings.Builder
	NewLogger(&b, false, slog.LevelInfo).Info("server ready", "pid", 3)
	var line map[string]any
	if err := json.Unmarshal([]byte(b.String()), &line); err != nil || line["msg"] != "server ready" || line["pid"] != 3.0 {
		t.Errorf("got %q, %v", b.String(), err)
	}
}
