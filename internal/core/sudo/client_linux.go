package sudo

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/eintr"
)

// Main is the program: args are those of the command line, with its name, and environ is its environment.
func Main(args, environ []string) int {
	var status int
	var err error
	if len(args) == 3 && args[1] == Helper {
		err = help(args[2])
	} else {
		status, err = ask(args[1:], environ)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sudo: %v\n", err)
		return 1
	}
	return status
}

// passed are the signals that reach the command.
var passed = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// ask has the command run, and returns its status.
func ask(args, environ []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed...)
	conn, err := meet()
	if err != nil {
		return 0, err
	}
	if err := sendRequest(conn, &o, environ); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = writeAll(conn, []byte{byte(s.(syscall.Signal))})
		}
	}()
	var answer [4]byte
	if err := readAll(conn, answer[:]); err != nil {
		return 0, errors.New("the command's helper was killed")
	}
	n := binary.LittleEndian.Uint32(answer[:])
	if n < isText {
		return int(n), nil
	}
	text := make([]byte, min(n-isText, maxText))
	if err := readAll(conn, text); err != nil {
		return 0, err
	}
	return 0, errors.New(string(text))
}

// An answer is an exit status, or isText and the length of an error's text.
const (
	isText  = 1 << 16
	maxText = 1 << 12
)

// meetTime is how long the helper has to come.
const meetTime = 60 * time.Second

// meet returns the connection with a helper.
func meet() (int, error) {
	var random [NameLen / 2]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return -1, err
	}
	name := hex.EncodeToString(random[:])
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrUnix{Name: "@" + prefix + name})
	}
	if err == nil {
		err = unix.Listen(l, 1)
	}
	if err != nil {
		return -1, fmt.Errorf("no socket: %w", err)
	}
	door, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = eintr.Do(func() error { return unix.Connect(door, &unix.SockaddrInet4{Port: 49983, Addr: [4]byte{127, 0, 0, 1}}) })
	}
	if err != nil {
		return -1, fmt.Errorf("the server is not reached (%w); only sandboxes of E2B's API have sudo: name the user in the call instead", err)
	}
	if err := writeAll(door, []byte("POST "+Door+name+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")); err != nil {
		return -1, fmt.Errorf("the server: %w", err)
	}
	for end := time.Now().Add(meetTime); time.Now().Before(end); {
		fds := []unix.PollFd{{Fd: int32(l), Events: unix.POLLIN}, {Fd: int32(door), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, 1000); err != nil && err != unix.EINTR {
			return -1, err
		}
		if fds[0].Revents != 0 {
			conn, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err != nil {
				return -1, err
			}
			if cred, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Uid == 0 {
				return conn, nil // door stays open: the server waits for the end with it
			}
			unix.Close(conn) // somebody has found the name
			continue
		}
		if fds[1].Revents != 0 {
			return -1, refused(door)
		}
	}
	return -1, errors.New("the server does not start the command")
}

// refused reads why the server does not.
func refused(door int) error {
	buf := make([]byte, 4096)
	n, err := eintr.Get(func() (int, error) { return unix.Read(door, buf) })
	if err != nil || n == 0 {
		return errors.New("the server has closed the connection; try again")
	}
	head, body, _ := strings.Cut(string(buf[:n]), "\r\n\r\n")
	line, _, _ := strings.Cut(head, "\r\n")
	return fmt.Errorf("the server answers %s: %s", strings.TrimPrefix(line, "HTTP/1.1 "), strings.TrimSpace(body))
}

// sendRequest sends what is to be run.
func sendRequest(conn int, o *options, environ []string) error {
	dir, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the working directory: %w", err)
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	flag := func(on bool) string { return strconv.FormatBool(on) }
	text := []byte(encode([][]string{
		{o.user, strconv.Itoa(mask), flag(o.preserve), flag(o.home), flag(o.login), flag(o.shell), flag(o.list)},
		o.keep, o.set, o.argv, environ,
	}))
	if len(text) > maxRequest {
		return fmt.Errorf("arguments and environment have %d bytes; the limit is %d", len(text), maxRequest)
	}
	var head [4]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(text)))
	// What is closed is sent as /dev/null would be.
	fds := []int{0, 1, 2, dir}
	for i := range 3 {
		if _, err := unix.FcntlInt(uintptr(i), unix.F_GETFD, 0); err != nil {
			if fds[i], err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
		}
	}
	if err := eintr.Do(func() error { return unix.Sendmsg(conn, head[:], unix.UnixRights(fds...), nil, 0) }); err != nil {
		return err
	}
	return writeAll(conn, text)
}
