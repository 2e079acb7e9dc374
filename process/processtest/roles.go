//go:build unix

package processtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/tend-run/tend/internal/lib/cleansignals"
)

// roleVariable names the environment variable that makes the test binary a
// child of the suite.
const roleVariable = "TEND_PROCESSTEST"

// Main plays a role and ends the program if the environment asks for one.
// Otherwise it makes sure that descriptors which the starter of the test left
// open, and signals it left ignored or blocked, do not reach the children of a
// manager inside the test, and returns. Call it first in TestMain.
func Main() {
	role := os.Getenv(roleVariable)
	if role == "" {
		if err := cleansignals.Exec(os.Args, os.Environ()); err != nil {
			fmt.Fprintf(os.Stderr, "processtest: %v\n", err)
			os.Exit(120)
		}
		closeOnExec()
		return
	}
	os.Unsetenv(roleVariable)
	play, ok := map[string]func(args []string) error{
		"answer":   answer,
		"pattern":  pattern,
		"listen":   listen,
		"session":  session,
		"checksum": checksum,
	}[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "processtest: unknown role %q\n", role)
		os.Exit(120)
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "processtest: %s: %v\n", role, err)
		os.Exit(121)
	}
	os.Exit(0)
}

func closeOnExec() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// patternAt fills b with the suite's self-describing bytes from offset on:
// each eighth of them is a word that says its own offset. It fills many
// megabytes that no other goroutine has yet: a race detector that watched each
// byte would take most of the suite's time.
//
//go:norace
func patternAt(b []byte, offset int64) {
	for len(b) > 0 {
		word, at := uint64(offset/8)*0x9e3779b97f4a7c15, offset%8
		if at == 0 && len(b) >= 8 {
			binary.BigEndian.PutUint64(b, word)
			b, offset = b[8:], offset+8
			continue
		}
		b[0] = byte(word >> (56 - 8*at))
		b, offset = b[1:], offset+1
	}
}

// checkPattern returns the first byte that is not as patternAt makes it, or -1.
func checkPattern(b []byte, offset int64) int64 {
	want := make([]byte, 1<<16)
	for len(b) > 0 {
		n := min(len(want), len(b))
		patternAt(want[:n], offset)
		if !bytes.Equal(b[:n], want[:n]) {
			for i := range n {
				if b[i] != want[i] {
					return offset + int64(i)
				}
			}
		}
		b, offset = b[n:], offset+int64(n)
	}
	return -1
}

// pattern writes the first args[1] bytes of the pattern to the descriptors
// args[0] ("1", "2" or "12"), in pieces of odd sizes.
func pattern(args []string) error {
	total, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	buf := make([]byte, 70001)
	size := 1
	for at := int64(0); at < total; {
		n := min(int64(size), total-at)
		patternAt(buf[:n], at)
		for _, c := range args[0] {
			f := os.Stdout
			if c == '2' {
				f = os.Stderr
			}
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
		}
		at += n
		size = size*3%len(buf) + 1
	}
	return nil
}

// listen listens on a free port, tells which, and continues until stdin ends.
func listen([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// answer says that it is ready, and then one line for each SIGUSR1.
func answer(args []string) error {
	got := make(chan os.Signal, 8)
	signal.Notify(got, syscall.SIGUSR1)
	fmt.Printf("%s ready\n", args[0])
	for range got {
		fmt.Printf("%s got it\n", args[0])
	}
	return nil
}

// session runs a command in a session of its own and waits for it, or with
// "-" first leaves it alone. The command may be a role, as "role=name".
func session(args []string) error {
	signal.Ignore(syscall.SIGUSR1)
	alone := args[0] == "-"
	if alone {
		args = args[1:]
	}
	cmd := exec.Command(args[0], args[1:]...)
	if role, ok := strings.CutPrefix(args[0], "role="); ok {
		cmd = exec.Command("/proc/self/exe", args[1:]...)
		cmd.Env = append(os.Environ(), roleVariable+"="+role)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil || alone {
		return err
	}
	return cmd.Wait()
}

// checksum checks that stdin is the pattern and tells its length.
func checksum([]string) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	buf := make([]byte, 1<<16)
	at := int64(0)
	for {
		n, err := in.Read(buf)
		if bad := checkPattern(buf[:n], at); bad >= 0 {
			return fmt.Errorf("byte %d of stdin is wrong", bad)
		}
		at += int64(n)
		if err == io.EOF {
			fmt.Println(at)
			return nil
		}
		if err != nil {
			return err
		}
	}
}
