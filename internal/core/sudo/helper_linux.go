package sudo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// securePath is where commands are looked up, and what they get as PATH.
const securePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// help runs a command for the client of that name. The client is told what goes wrong.
func help(name string) error {
	if unix.Getuid() != 0 {
		return errors.New("the helper is started by the server, as root")
	}
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = eintr.Do(func() error { return unix.Connect(conn, &unix.SockaddrUnix{Name: "@" + prefix + name}) })
	}
	if err != nil {
		return err
	}
	status, err := serve(conn)
	if err != nil {
		text := err.Error()[:min(len(err.Error()), maxText)]
		return errors.Join(writeAll(conn, append(binary.LittleEndian.AppendUint32(nil, uint32(isText+len(text))), text...)), leave(conn))
	}
	return writeAll(conn, binary.LittleEndian.AppendUint32(nil, uint32(status)))
}

// leave reads what is left of a request that is refused: who still writes it would be told that nobody
// reads, and not why.
func leave(conn int) error {
	wait := unix.NsecToTimeval(int64(receiveTime))
	if err := unix.SetsockoptTimeval(conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(receiveTime); time.Now().Before(end); {
		n, err := eintr.Get(func() (int, error) { return unix.Read(conn, buf) })
		if err != nil || n == 0 {
			return nil
		}
	}
	return nil
}

func serve(conn int) (status int, err error) {
	caller, err := callerOf(conn)
	if err != nil {
		return 0, err
	}
	// A client that says nothing holds nobody up for long.
	wait := unix.NsecToTimeval(int64(receiveTime))
	if err := unix.SetsockoptTimeval(conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, err
	}
	lists, fds, err := receive(conn)
	if err == nil {
		err = unix.SetsockoptTimeval(conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{})
	}
	if err != nil {
		return 0, err
	}
	flags := lists[0]
	o := options{user: flags[0], keep: lists[1], set: lists[2], argv: lists[3]}
	mask, err := strconv.ParseUint(flags[1], 10, 9)
	if err != nil {
		return 0, errRequest
	}
	for i, to := range []*bool{&o.preserve, &o.home, &o.login, &o.shell, &o.list} {
		*to = flags[2+i] == "true"
	}
	if o.user == "" {
		o.user = "root"
	}
	target, ok := accountOf(o.user)
	if !ok {
		return 0, fmt.Errorf("unknown user %s", o.user)
	}
	if o.list && len(o.argv) == 0 {
		return 0, nil
	}
	if err := unix.Fchdir(fds[3]); err != nil {
		return 0, fmt.Errorf("the working directory: %w", err)
	}
	if o.login {
		if err := os.Chdir(target.home); err != nil {
			return 0, err
		}
	}
	unix.Umask(int(mask))
	path, argv, err := command(&o, &target)
	if err != nil {
		return 0, err
	}
	how := &syscall.SysProcAttr{Setpgid: true}
	if target.uid != 0 { // a sandbox with one id refuses to set it
		how.Credential = &syscall.Credential{Uid: uint32(target.uid), Gid: uint32(target.gid), Groups: target.groups}
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: environ(&o, &target, &caller, lists[4], argv), Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys: how,
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for _, fd := range fds { // else a pipe of the caller's has no end
		unix.Close(fd)
	}
	go pass(conn, pid)
	var ws unix.WaitStatus
	if _, err := eintr.Get(func() (int, error) { return unix.Wait4(pid, &ws, 0, nil) }); err != nil {
		return 0, err
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// callerOf refuses callers that may not. The kernel says who they are.
func callerOf(conn int) (account, error) {
	cred, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return account{}, err
	}
	a, ok := accountOf("#" + strconv.Itoa(int(cred.Uid)))
	if !ok {
		a = account{name: "#" + strconv.Itoa(int(cred.Uid)), uid: int(cred.Uid), gid: int(cred.Gid)}
	}
	if cred.Uid != 0 && a.name != Allowed {
		return a, fmt.Errorf("%s may not use sudo here; root and %s may", a.name, Allowed)
	}
	return a, nil
}

// receive reads a request, and the four descriptors of it.
func receive(conn int) (lists [][]string, fds []int, err error) {
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(16*4))
	n, oobn := 0, 0
	err = eintr.Do(func() error {
		n, oobn, _, _, err = unix.Recvmsg(conn, head, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
		return err
	})
	if err != nil || n != len(head) {
		return nil, nil, errors.Join(errRequest, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(fds) != 4 {
		return nil, nil, errors.Join(errRequest, err)
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxRequest {
		return nil, nil, errRequest
	}
	text := make([]byte, size)
	if err := readAll(conn, text); err != nil {
		return nil, nil, err
	}
	if lists, err = decode(string(text), 5); err == nil && len(lists[0]) != 7 {
		err = errRequest
	}
	return lists, fds, err
}

// command is the program and its arguments.
func command(o *options, target *account) (path string, argv []string, err error) {
	argv = o.argv
	if o.login || o.shell {
		name := target.shell
		if o.login {
			name = "-" + filepath.Base(target.shell)
		}
		quoted := make([]string, len(argv))
		for i, a := range argv {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		if argv = []string{name}; len(quoted) > 0 {
			argv = append(argv, "-c", strings.Join(quoted, " "))
		}
		return target.shell, argv, nil
	}
	if strings.Contains(argv[0], "/") {
		return argv[0], argv, nil
	}
	for dir := range strings.SplitSeq(securePath, ":") {
		path := filepath.Join(dir, argv[0])
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, argv, nil
		}
	}
	return "", nil, fmt.Errorf("%s: command not found", argv[0])
}

// kept are variables of the caller that each command gets.
var kept = []string{"TERM", "COLORTERM", "LANG", "LANGUAGE", "DISPLAY", "LS_COLORS", "TZ"}

func environ(o *options, target, caller *account, from, argv []string) []string {
	env := map[string]string{}
	for _, v := range from {
		name, value, _ := strings.Cut(v, "=")
		if o.preserve || slices.Contains(o.keep, name) || slices.Contains(kept, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	if !o.preserve || o.home || o.login || env["HOME"] == "" {
		env["HOME"] = target.home
	}
	env["PATH"], env["USER"], env["LOGNAME"], env["SHELL"] = securePath, target.name, target.name, target.shell
	env["SUDO_USER"], env["SUDO_UID"], env["SUDO_GID"] = caller.name, strconv.Itoa(caller.uid), strconv.Itoa(caller.gid)
	env["SUDO_COMMAND"] = strings.Join(argv, " ")
	for _, v := range o.set {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	all := make([]string, 0, len(env))
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	return all
}

// receiveTime is how long a request may take.
const receiveTime = 10 * time.Second

// killAfter is how long a command may take to end once its caller is gone.
const killAfter = 2 * time.Second

// pass gives signals to the command, and ends it when the client is gone.
func pass(conn, pid int) {
	b := make([]byte, 1)
	for readAll(conn, b) == nil {
		_ = unix.Kill(-pid, unix.Signal(b[0]))
	}
	_ = unix.Kill(-pid, unix.SIGTERM)
	time.Sleep(killAfter)
	_ = unix.Kill(-pid, unix.SIGKILL)
}
