package view_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// answers has a listener say its name, and then what it is told.
func answers(t *testing.T, l net.Listener, name string) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "%s ", name)
				io.Copy(c, c)
			}()
		}
	}()
}

// TestARunReachesWhatItIsLetTo: an address of the machine's loopback at that address, and a socket at its path;
// neither another port nor, in a command, those.
func TestARunReachesWhatItIsLetTo(t *testing.T) {
	proctest.Root(t)
	short := proctest.Value(filepath.EvalSymlinks(proctest.Value(os.MkdirTemp("", "s"))(t)))(t)
	t.Cleanup(func() { os.RemoveAll(short) })
	root := filepath.Join(short, "app")
	proctest.Must(t, errors.Join(os.Mkdir(root, 0o755), os.Chmod(short, 0o755)))
	listen := func() net.Listener { return proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t) }
	database, other := listen(), listen()
	answers(t, database, "database")
	answers(t, other, "another")
	run := filepath.Join("/run", filepath.Base(short)) // a sandbox has a /run of its own
	t.Cleanup(func() { os.RemoveAll(run) })
	proctest.Must(t, os.Mkdir(run, 0o755))
	socket := filepath.Join(run, "sock")
	answers(t, proctest.Value(net.Listen("unix", socket))(t), "socket")
	proctest.Must(t, os.Chmod(socket, 0o666))
	const ask = `
import socket, sys
for at in sys.argv[1:]:
    try:
        s = socket.socket(socket.AF_UNIX) if at[0] == "/" else socket.socket()
        s.settimeout(20)
        s.connect(at if at[0] == "/" else ("127.0.0.1", int(at)))
        s.sendall(b"asked")
        s.shutdown(socket.SHUT_WR)
        print(b"".join(iter(lambda: s.recv(99), b"")).decode())
    except OSError as e:
        print("no", at)
print("ready", flush=True)
import time; time.sleep(1000)
`
	port := func(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }
	argv := []string{"python3", "-c", ask, port(database), port(other), socket}
	rules := &config.Service{Cwd: root, Command: config.Command{Argv: argv}, Startup: &config.Probe{Log: "^ready"}}
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}})
	var pass []config.Pass
	for _, text := range []string{"localhost:" + port(database), socket} {
		pass = append(pass, proctest.Value(config.PassOf(text))(t))
	}
	var dialer net.Dialer
	env := map[string]string{"PATH": os.Getenv("PATH")}
	v := proctest.Value(view.Open(t.Context(), view.Config{Client: d.Connect(t), ID: "e1", Root: root, Rules: rules, Path: os.Getenv("PATH"),
		User: "65534:65534", Pass: pass, Dial: dialer.DialContext, Self: testbin.Released.Tend(bin)}))(t)
	out := proctest.Value(v.Run(t.Context(), &view.Set{}, view.Look{Env: env, Start: time.Minute}))(t)
	if want := "database asked\nno " + port(other) + "\nsocket asked\nready"; !out.Well || !strings.HasPrefix(out.Log, want) {
		t.Errorf("it is %+v; want %q", out, want)
	}
	argv[2] = strings.ReplaceAll(ask, "time.sleep(1000)", "0")
	ran, _, err := v.Exec(t.Context(), &view.Set{}, nil, process.Spec{Argv: argv, Env: env, Timeout: time.Minute})
	if want := "no " + port(database) + "\nno " + port(other) + "\nno " + socket + "\nready\n"; err != nil || ran.Output != want {
		t.Errorf("a command says %q, %v; want %q", ran.Output, err, want)
	}
}
