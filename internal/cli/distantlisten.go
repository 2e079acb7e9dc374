package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
)

// distantListenCmd serves distant's encrypted transport. Its flags are those of
// "distant server listen", so that distant's launcher can call it.
type distantListenCmd struct {
	Host         string `default:"127.0.0.1" placeholder:"IP" help:"Address to listen on; any for all addresses, ssh for the address that the SSH client connected to. Default: 127.0.0.1."`
	Port         string `default:"8080:8090" placeholder:"A[:B]" help:"The first free port of a range; 0 picks one. Default: 8080:8090."`
	UseIPv6      bool   `short:"6" name:"use-ipv6" help:"With --host any: all IPv6 addresses."`
	Shutdown     string `default:"never" placeholder:"WHEN" help:"never, after=SECONDS, or lonely=SECONDS without a connection. Default: never."`
	CurrentDir   string `name:"current-dir" placeholder:"DIR" help:"Working directory of processes that name none. Default: this one."`
	Daemon       bool   `help:"Continue in the background once it serves."`
	KeyFromStdin bool   `name:"key-from-stdin" help:"Use the first 32 bytes of stdin as the key. Default: the key used on this address before, or a new one."`

	// The original's flags that mean nothing here.
	LogLevel     string  `hidden:"" name:"log-level"`
	LogFile      string  `hidden:"" name:"log-file"`
	Config       string  `hidden:""`
	WatchPolling bool    `hidden:"" name:"watch-polling"`
	WatchPoll    float64 `hidden:"" name:"watch-poll-interval"`
	WatchCompare bool    `hidden:"" name:"watch-compare-contents"`
	WatchTimeout float64 `hidden:"" name:"watch-debounce-timeout"`
	WatchTick    float64 `hidden:"" name:"watch-debounce-tick-rate"`
}

// lifetime says when a server ends by itself. Zero: never.
type lifetime struct{ after, lonely time.Duration }

func (c *distantListenCmd) lifetime() (l lifetime, err error) {
	kind, text, _ := strings.Cut(c.Shutdown, "=")
	if kind == "never" && text == "" {
		return l, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err == nil && seconds >= 0 && seconds <= 10*365*24*3600 {
		d := time.Duration(seconds * float64(time.Second))
		switch kind {
		case "after":
			return lifetime{after: max(d, 1)}, nil
		case "lonely":
			return lifetime{lonely: max(d, 1)}, nil
		}
	}
	return l, usageError(fmt.Sprintf("--shutdown %s: write never, after=SECONDS or lonely=SECONDS", c.Shutdown))
}

func (c *distantListenCmd) Run(ctx context.Context, inv *invocation) error {
	life, err := c.lifetime()
	if err != nil {
		return err
	}
	if c.Daemon {
		return c.background(inv)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	l, err := c.listen(inv)
	if err != nil {
		return err
	}
	defer l.Close()
	native, key, err := c.serverOn(ctx, inv, l)
	if err != nil {
		return err
	}
	defer native.Close()
	// As the original prints it; its launcher takes the first line that is a
	// URI, and then closes the pipe.
	signal.Ignore(syscall.SIGPIPE)
	if _, err := fmt.Fprintf(inv.out, "\r\n%s\n\r\n", distant.URI(l.Addr(), key)); err != nil {
		return fmt.Errorf("print the URI: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return life.bound(cancel, native, func() error { return native.Serve(ctx, l) })
}

// serverOn makes the server for a listener, with its key and the sessions of
// an earlier one on the same address.
func (c *distantListenCmd) serverOn(ctx context.Context, inv *invocation, l net.Listener) (*distant.Native, secure.Key, error) {
	var key secure.Key
	state, err := inv.stateDir()
	if err != nil {
		return nil, key, err
	}
	// Nobody else can listen on the address, so the directory is ours.
	dir := filepath.Join(state, "distant", strings.ReplaceAll(l.Addr().String(), ":", "_"))
	if c.KeyFromStdin {
		if _, err := io.ReadFull(inv.in, key[:]); err != nil {
			return nil, key, fmt.Errorf("--key-from-stdin needs 32 bytes: %w", err)
		}
		err = distant.SaveKey(dir, key)
	} else {
		key, err = distant.LoadKey(dir)
	}
	if err != nil {
		return nil, key, err
	}
	f, err := inv.distantFace(ctx, c.CurrentDir)
	if err != nil {
		return nil, key, err
	}
	native, err := distant.NewNative(distant.NativeConfig{Face: f, Dir: dir, Key: key})
	return native, key, err
}

// bound runs serve and ends it when its time has come.
func (l lifetime) bound(cancel context.CancelFunc, native *distant.Native, serve func() error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	var end <-chan time.Time
	if l.after > 0 {
		end = time.After(l.after)
	}
	var look <-chan time.Time
	if l.lonely > 0 {
		tick := time.NewTicker(max(min(l.lonely/4, time.Second), time.Millisecond))
		defer tick.Stop()
		look = tick.C
	}
	for {
		select {
		case err := <-served:
			return err
		case <-end:
			cancel()
		case <-look:
			if native.Idle() >= l.lonely {
				cancel()
			}
		}
	}
}

// listen takes the first free port of the range.
func (c *distantListenCmd) listen(inv *invocation) (net.Listener, error) {
	host := c.Host
	switch host {
	case "any":
		host = "0.0.0.0"
		if c.UseIPv6 {
			host = "::"
		}
	case "ssh":
		// client port, client address, server address, server port
		parts := strings.Fields(inv.getenv("SSH_CONNECTION"))
		if len(parts) != 4 {
			return nil, errors.New("--host ssh: SSH_CONNECTION is not set, so this is no SSH session; give an address")
		}
		host = parts[2]
	}
	if net.ParseIP(host) == nil {
		return nil, usageError(fmt.Sprintf("--host %s: write an address, any or ssh", c.Host))
	}
	first, last, ranged := strings.Cut(c.Port, ":")
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := from, error(nil)
	if ranged {
		to, err2 = strconv.ParseUint(last, 10, 16)
	}
	if err1 != nil || err2 != nil || to < from {
		return nil, usageError(fmt.Sprintf("--port %s: write PORT, or FIRST:LAST", c.Port))
	}
	var err error
	for port := from; port <= to; port++ {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.FormatUint(port, 10))); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// background starts the same command apart from this terminal, and prints what
// it says until it serves.
func (c *distantListenCmd) background(inv *invocation) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool { return a == "--daemon" })
	cmd := exec.Command(exe, args...)
	cmd.Stdin, cmd.Stderr = inv.in, inv.errs
	cmd.SysProcAttr = apart()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "distant://") {
			if _, err := fmt.Fprintf(inv.out, "\r\n%s\n\r\n", lines.Text()); err != nil {
				return err
			}
			return cmd.Process.Release()
		}
	}
	return errors.Join(errors.New("the server did not start"), cmd.Wait())
}
