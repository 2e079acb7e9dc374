package langsmith

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// maxMessage bounds one message from a client in bytes: a command with its
// environment, or one piece of input.
const maxMessage = 16 << 20

// maxCommandID bounds a client's command_id in bytes.
const maxCommandID = 256

// message is what a client sends. Fields of all types are together, as the
// type is known only when it is read.
type message struct {
	Type string `json:"type"`

	// execute
	executeRequest
	IdleTimeout      *seconds `json:"idle_timeout_seconds"`
	Timeout          *seconds `json:"timeout_seconds"`
	TTL              *seconds `json:"ttl_seconds"`
	KillOnDisconnect bool     `json:"kill_on_disconnect"`
	CloseStdin       bool     `json:"close_stdin"`
	PTY              bool     `json:"pty"`
	SSHAgentForward  bool     `json:"ssh_agent_forward"`

	// execute and reconnect
	CommandID string `json:"command_id"`

	// reconnect
	StdoutOffset int64 `json:"stdout_offset"`
	StderrOffset int64 `json:"stderr_offset"`

	// input
	Data string `json:"data"`

	// resize
	Cols int64 `json:"cols"`
	Rows int64 `json:"rows"`
}

// executeRequest is what POST /execute and the execute message share.
type executeRequest struct {
	Command   string            `json:"command"`
	Shell     string            `json:"shell"`
	Env       map[string]string `json:"env"`
	Cwd       string            `json:"cwd"`
	RunConfig *runConfig        `json:"run_config"`
}

// runConfig is the user, directory and environment of a box or a command.
type runConfig struct {
	User    string            `json:"user,omitempty"`
	WorkDir string            `json:"work_dir,omitempty"`
	EnvVars map[string]string `json:"env_vars,omitempty"`
}

// seconds is a number of seconds, whole or not.
type seconds float64

// duration clamps to what a spec may hold; negative is never.
func (s seconds) duration() time.Duration {
	if float64(s) >= process.MaxTimeout.Seconds() {
		return process.MaxTimeout
	}
	return time.Duration(float64(s) * float64(time.Second))
}

// or returns the seconds, or a default where there are none.
func or(s *seconds, def float64) seconds {
	if s == nil {
		return seconds(def)
	}
	return *s
}

// parseMessage decodes a frame. The errors are for the client.
func parseMessage(b []byte) (*message, error) {
	if !utf8.Valid(b) {
		return nil, requestErrorf("the message is not valid UTF-8")
	}
	m := new(message)
	if err := protocol.DecodeJSON(b, m); err != nil {
		return nil, requestErrorf("the message is not what this protocol sends: %v", err)
	}
	return m, nil
}

// requestError is a mistake in a request. Its text says what to change.
type requestError struct {
	text string
	code websocket.StatusCode // that the connection closes with; 0: 1000
}

func (e *requestError) Error() string { return e.text }

func requestErrorf(format string, args ...any) error {
	return &requestError{text: fmt.Sprintf(format, args...)}
}

// Defaults of a command, as the SDKs send them.
const (
	defaultShell   = "/bin/bash"
	defaultTimeout = 60
	defaultIdle    = 300
	defaultTTL     = 600
)

// reconnectGrace is how long a command with kill_on_disconnect lives without
// a client when it was the server that went away: a client bridges 15.5 s.
const reconnectGrace = 20 * time.Second

// Labels of the processes of this face.
const (
	labelCommand          = "langsmith.command"            // command_id
	labelKillOnDisconnect = "langsmith.kill_on_disconnect" // "1"
)

// spec translates an execute message. id is the process's.
func (m *message) spec(id process.ID, box *driver.Info) (process.Spec, error) {
	spec, err := m.executeRequest.spec(box, m.PTY)
	if err != nil {
		return spec, err
	}
	if m.SSHAgentForward {
		return spec, requestErrorf("ssh_agent_forward is not supported by this server; leave it out and put a key into the sandbox")
	}
	timeout, idle, ttl := or(m.Timeout, defaultTimeout), or(m.IdleTimeout, defaultIdle), or(m.TTL, defaultTTL)
	for name, v := range map[string]seconds{"timeout_seconds": timeout, "idle_timeout_seconds": idle, "ttl_seconds": ttl} {
		if v < -1 || v < 0 && (v != -1 || name == "timeout_seconds") || math.IsNaN(float64(v)) {
			return spec, requestErrorf("%s is %v; a number of seconds is wanted, and -1 means never for idle_timeout_seconds and ttl_seconds",
				name, float64(v))
		}
	}
	spec.ID = id
	spec.Tag = m.CommandID
	spec.Labels = map[string]string{labelCommand: m.CommandID}
	spec.Timeout = timeout.duration()
	if timeout > 0 {
		spec.Timeout = max(spec.Timeout, time.Millisecond) // 0 would be never
	}
	if idle >= 0 {
		spec.KillWithoutReaders = max(idle.duration(), time.Second)
	}
	if m.KillOnDisconnect {
		spec.Labels[labelKillOnDisconnect] = "1"
		if spec.KillWithoutReaders == 0 || spec.KillWithoutReaders > reconnectGrace {
			spec.KillWithoutReaders = reconnectGrace
		}
	}
	spec.Retention.TTL = process.MaxTimeout
	if ttl >= 0 {
		spec.Retention.TTL = max(ttl.duration(), time.Second)
	}
	if m.PTY {
		spec.PTY = &process.Size{Cols: side(m.Cols, 80), Rows: side(m.Rows, 24)}
	} else if !m.CloseStdin {
		spec.Stdin = process.StdinPipe
	}
	return spec, nil
}

// side clamps one side of a terminal; 0 is the default.
func side(n int64, def uint16) uint16 {
	if n <= 0 {
		return def
	}
	return uint16(min(n, process.MaxTermSide))
}

// spec is what both ways to execute have in common.
func (e *executeRequest) spec(box *driver.Info, pty bool) (process.Spec, error) {
	var spec process.Spec
	if e.RunConfig != nil && (len(e.Env) > 0 || e.Cwd != "") {
		return spec, requestErrorf("run_config cannot be combined with env or cwd; put them into run_config as env_vars and work_dir")
	}
	run := runConfig{WorkDir: e.Cwd, EnvVars: e.Env}
	if e.RunConfig != nil {
		run = *e.RunConfig
	}
	if err := driver.CheckEnv("env", run.EnvVars); err != nil {
		return spec, &requestError{text: err.Error()}
	}
	shell := cmp.Or(e.Shell, defaultShell)
	switch {
	case e.Command != "":
		spec.Argv = []string{shell, "-c", e.Command}
	case pty:
		spec.Argv = []string{shell}
	default:
		return spec, requestErrorf("command is empty; without a command there is only a terminal (pty: true)")
	}
	spec.Env = run.EnvVars
	if _, ok := spec.Env["TERM"]; pty && !ok {
		spec.Env = map[string]string{"TERM": "xterm-256color"}
		maps.Copy(spec.Env, run.EnvVars)
	}
	spec.User = run.User
	spec.Dir = run.WorkDir
	if spec.Dir != "" && spec.Dir[0] != '/' {
		spec.Dir = cmp.Or(box.Run.Dir, box.Dir) + "/" + spec.Dir
	}
	return spec, nil
}

// Frames that the server sends.

func startedFrame(commandID string, pid int) []byte {
	return appendObject(nil, "type", "started", "command_id", commandID, "pid", int64(pid))
}

func exitFrame(code int) []byte {
	return appendObject(nil, "type", "exit", "exit_code", int64(code))
}

func errorFrame(kind, text string) []byte {
	return appendObject(nil, "type", "error", "error_type", kind, "error", text)
}
