package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/process"
)

// Labels keep what the request said where the spec says something else, so
// that List can answer with the configuration as it was given.
const (
	labelCwd  = "envd.cwd"  // cwd as sent; "" if none was
	labelEnv  = "envd.env"  // names of the variables sent, joined with "="
	labelArgv = "envd.argv" // cmd and args as a JSON array, if they differ
)

// drainAfterExit is how long a stream waits for more output once the leader
// has ended and a descendant still holds a pipe. The original waits for the
// end of file, which may be for ever.
const drainAfterExit = 100 * time.Millisecond

// start starts what the request asks for. timeout 0 means none. The errors
// have Connect's codes and the original's texts (envd.md §3.2).
func (f *Face) start(ctx context.Context, h http.Header, req *pb.StartRequest, timeout time.Duration) (process.Process, error) {
	cur := f.settingsIn(ctx)
	spec, err := f.spec(ctx, h, req, timeout, &cur)
	if err != nil {
		return nil, err
	}
	given := spec.Argv
	if given[0] == "" {
		return f.startMissing(ctx, spec, given, &process.StartError{Reason: process.StartNotFound})
	}
	p, err := f.in(ctx).Processes().Start(ctx, spec)
	failed, ok := errors.AsType[*process.StartError](err)
	if !ok {
		return p, wrapStart(err)
	}
	switch failed.Reason {
	case process.StartNotFound, process.StartPermission:
		return f.startMissing(ctx, spec, given, failed)
	case process.StartFormat:
		return f.startScript(ctx, spec, given)
	}
	return nil, startFailed(given, failed)
}

// spec translates the request.
func (f *Face) spec(ctx context.Context, h http.Header, req *pb.StartRequest, timeout time.Duration, cur *saved) (process.Spec, error) {
	var spec process.Spec
	who, err := f.accountFor(ctx, cur)
	if err != nil {
		return spec, err
	}
	config := req.GetProcess()
	dir, err := resolveDir(config.GetCwd(), cur.DefaultWorkdir, who)
	if err != nil {
		return spec, connect.NewError(connect.CodeInvalidArgument, err)
	}
	argv := append([]string{config.GetCmd()}, config.GetArgs()...)
	scope, err := killScopeOf(h)
	if err != nil {
		return spec, err
	}

	// Last wins: global variables, then the request's. The wrapper shell of
	// the original adds PWD, which programs may rely on.
	env := cur.globalEnv()
	env["PWD"] = dir
	names := make([]string, 0, len(config.GetEnvs()))
	for k, v := range config.GetEnvs() {
		env[k] = v
		names = append(names, k)
	}
	slices.Sort(names)

	spec = process.Spec{
		ID: process.ID(h.Get(headerID)), Tag: req.GetTag(),
		Argv: argv, Env: env, Dir: dir, User: who.name,
		Timeout: min(timeout, process.MaxTimeout), TimeoutScope: scope,
		Labels: map[string]string{labelEnv: strings.Join(names, "=")},
	}
	if config.GetCwd() != dir {
		spec.Labels[labelCwd] = config.GetCwd()
	}
	if pty := req.GetPty(); pty != nil {
		spec.PTY = sizeOf(pty)
	} else if req.Stdin == nil || req.GetStdin() {
		spec.Stdin = process.StdinPipe
	}
	return spec, nil
}

// sizeOf truncates to 16 bits as the kernel's winsize does; absent is 0×0.
func sizeOf(pty *pb.PTY) *process.Size {
	return &process.Size{Cols: uint16(pty.GetSize().GetCols()), Rows: uint16(pty.GetSize().GetRows())}
}

// startFailed words a failure as the original does, whose processes all begin
// as a shell.
func startFailed(argv []string, failed *process.StartError) error {
	code := connect.CodeInvalidArgument
	cause := error(failed)
	switch failed.Reason {
	case process.StartResources, process.StartLimits:
		code = connect.CodeResourceExhausted
	case process.StartTooLong:
		if !errors.Is(failed.Err, syscall.ENAMETOOLONG) {
			cause = fmt.Errorf("fork/exec /bin/sh: argument list too long")
		}
	case process.StartBadDir:
		if errors.Is(failed.Err, fs.ErrNotExist) {
			return errorf(code, "cwd '%s' does not exist", failed.What)
		}
		if errno, ok := errors.AsType[syscall.Errno](failed.Err); ok {
			cause = fmt.Errorf("fork/exec /bin/sh: %w", errno)
		}
	}
	return errorf(code, "error starting process '%s': %w", clipped(strings.Join(argv, " ")), cause)
}

func wrapStart(err error) error {
	if err == nil {
		return nil
	}
	return wireErr(err)
}

// startMissing stands in for a command that cannot be run. The original
// starts everything through sh and nice, so the caller of a missing command
// sees a process that writes nice's complaint and exits with 127 or 126; SDKs
// and scripts rely on it.
func (f *Face) startMissing(ctx context.Context, spec process.Spec, given []string, failed *process.StartError) (process.Process, error) {
	reason, code := "No such file or directory", "127"
	if failed.Reason == process.StartPermission {
		reason, code = "Permission denied", "126"
	}
	text := fmt.Sprintf("/usr/bin/nice: '%s': %s\n", given[0], reason)
	return f.startInstead(ctx, spec, given, []string{"/bin/sh", "-c", `printf %s "$1" >&2; exit "$2"`, "sh", text, code})
}

// startScript runs a file without a #! line the way execvp does: by /bin/sh.
// A name without a slash is looked up by the shell, in the process's PATH.
func (f *Face) startScript(ctx context.Context, spec process.Spec, given []string) (process.Process, error) {
	argv := append([]string{"/bin/sh"}, given...)
	if !strings.Contains(given[0], "/") {
		argv = append([]string{"/bin/sh", "-c", `exec /bin/sh "$(command -v -- "$0")" "$@"`}, given...)
	}
	return f.startInstead(ctx, spec, given, argv)
}

func (f *Face) startInstead(ctx context.Context, spec process.Spec, given, argv []string) (process.Process, error) {
	text, err := json.Marshal(given)
	if err != nil { // impossible: strings
		return nil, wireErr(err)
	}
	spec.Argv = argv
	spec.Labels[labelArgv] = string(text)
	p, err := f.in(ctx).Processes().Start(ctx, spec)
	if failed, ok := errors.AsType[*process.StartError](err); ok {
		return nil, startFailed(given, failed)
	}
	return p, wrapStart(err)
}

// configOf returns the configuration of a process as the request gave it.
func configOf(info *process.Info) *pb.ProcessConfig {
	spec := &info.Spec
	argv := spec.Argv
	if len(argv) == 0 {
		argv = []string{"/bin/sh", "-c", spec.Shell}
	}
	if text, ok := spec.Labels[labelArgv]; ok {
		var given []string
		if json.Unmarshal([]byte(text), &given) == nil && len(given) > 0 {
			argv = given
		}
	}
	c := &pb.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: spec.Env}
	if names, ok := spec.Labels[labelEnv]; ok {
		c.Envs = map[string]string{}
		for name := range strings.SplitSeq(names, "=") {
			if name != "" {
				c.Envs[name] = spec.Env[name]
			}
		}
	}
	cwd := spec.Dir
	if given, ok := spec.Labels[labelCwd]; ok {
		cwd = given
	}
	if cwd != "" {
		c.Cwd = &cwd
	}
	return c
}
