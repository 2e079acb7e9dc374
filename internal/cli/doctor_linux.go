package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/cli/doctor"
	"github.com/tend-run/tend/internal/core/embedded"
	"github.com/tend-run/tend/internal/core/launch"
	"github.com/tend-run/tend/internal/lib/sockdiag"
)

// checkHere checks this machine and the user's own daemon. If there is no daemon, one is
// tried: started in a directory of its own beside the state directory, asked, and ended.
func checkHere(ctx context.Context, inv *invocation, dir string) (*doctorFacts, error) {
	facts := &doctorFacts{Asked: "daemon"}
	add := func(all ...doctor.Finding) { facts.Checks = append(facts.Checks, all...) }
	s, err := inv.settled(ctx)
	none, isNone := errors.AsType[*noDaemonError](err)
	switch {
	case err == nil:
		add(doctor.Finding{Name: "daemon", State: doctor.OK, Detail: "runs at " + s.URL}, versionFinding(s.Version))
		add(programFindings(dir, s)...)
		add(exposureFinding(dir, s), secretFinding(s.Roles["server"].PID))
	case isNone:
		facts.Asked = "trial"
		f := doctor.Finding{Name: "daemon", State: doctor.OK, Detail: "none runs, and one was tried"}
		if none.kept {
			f.State, f.Mend = doctor.Limited, "tend serve, or any tend run"
			f.Detail = "none runs, but the processes of the one before do (it ended with --keep), and one was tried"
		}
		if s, err = inv.trial(ctx, dir); err != nil {
			facts.Asked = "nobody"
			f.State, f.Detail, f.Mend = doctor.Broken, "none runs, and none can: "+err.Error(), ""
		}
		add(f)
	default:
		facts.Asked = "nobody"
		add(doctor.Finding{Name: "daemon", State: doctor.Broken, Detail: strings.Join(nonEmpty(err.Error(), launch.Silent(dir)), ": "),
			Mend: "tend shutdown, then tend serve"})
	}
	own := doctor.Finding{Name: "state_directory", State: doctor.OK, Detail: dir}
	if err := launch.Owned(dir); err != nil {
		own.State, own.Detail = doctor.Broken, err.Error()
	}
	add(own, socketFinding(inv), portFinding(dir))
	add(doctor.ReadMachine(dir).Findings()...)
	add(toolFindings()...)
	add(unitFindings()...)
	if s != nil {
		add(ofStatus(s)...)
	}
	return facts, nil
}

func nonEmpty(words ...string) []string {
	return slices.DeleteFunc(words, func(s string) bool { return s == "" })
}

// trialTime is how long the daemon that is tried may take to start and to end.
const trialTime = time.Minute

// trial starts a daemon on the filesystem of the state directory, asks for its status,
// and ends it, also when this program is told to end.
func (inv *invocation) trial(ctx context.Context, dir string) (*statusFacts, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	at, err := os.MkdirTemp(doctor.Existing(dir), "tend-doctor-")
	if err != nil {
		return nil, fmt.Errorf("%w (choose another with --state-dir)", err)
	}
	defer os.RemoveAll(at)
	short, err := os.MkdirTemp("", "tend-doctor-") // a path of a socket may not be long
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(short)
	socket := filepath.Join(short, "s")
	log, err := os.OpenFile(filepath.Join(short, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	launcher, ended, err := serveApart(log, "--state-dir", at, "--listen", "none", "--socket", socket, "--no-spare-sandbox")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = launcher.Signal(syscall.SIGTERM)
		<-ended
	}()
	flags, own := *inv.flags, *inv
	flags.URL, flags.Token = "unix://"+socket, ""
	own.flags, own.dialed = &flags, nil
	for wait := 5 * time.Millisecond; ; wait = min(wait*2, 200*time.Millisecond) {
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			return nil, errors.New(strings.TrimSpace(string(said)))
		case <-ctx.Done():
			return nil, fmt.Errorf("it does not answer after %v: %w", trialTime, ctx.Err())
		case <-time.After(wait):
		}
		if why := trouble(at); why != "" {
			return nil, errors.New(why)
		}
		if nobodyAt(ctx, own.flags.URL) {
			continue
		}
		s, err := own.settled(ctx)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
	}
}

// programFindings judge whether the roles run the programs that this tend would start:
// after an upgrade some may be of the version before.
func programFindings(dir string, s *statusFacts) (out []doctor.Finding) {
	pids := map[string]int{"launcher": launch.Launcher(dir)}
	for name, r := range s.Roles {
		pids[name] = r.PID
	}
	carried, err := embedded.Bytes()
	for _, name := range []string{"launcher", "anchor", "keeper", "server"} {
		f := doctor.Finding{Name: "role_" + name, State: doctor.OK, Detail: fmt.Sprintf("pid %d", pids[name])}
		switch {
		case pids[name] == 0:
			f.State, f.Detail, f.Mend = doctor.Broken, "is not there", "look again in a moment; if it stays: tend shutdown --keep, then tend serve"
		case name == "server":
			if at, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pids[name])); err == nil && strings.HasSuffix(at, " (deleted)") {
				f.State, f.Detail, f.Mend = doctor.Limited, f.Detail+" runs a program that is not there any more, as after an update of the package",
					"tend upgrade"
			}
		case err == nil && !runs(pids[name], carried):
			f.State, f.Detail, f.Mend = doctor.Limited, f.Detail+" runs another program than this tend carries, as after an upgrade of other roles",
				"tend upgrade --keeper"
			if name != "keeper" {
				f.Mend = "tend shutdown --keep, then tend serve; nothing needs it"
			}
		}
		out = append(out, f)
	}
	return out
}

// runs reports whether a process runs this program; also where that cannot be seen.
func runs(pid int, program []byte) bool {
	is, err := os.ReadFile(fmt.Sprintf("/proc/%d/exe", pid))
	return err != nil || bytes.Equal(is, program)
}

// exposureFinding judges on which addresses the daemon listens, and who is admitted.
func exposureFinding(dir string, s *statusFacts) doctor.Finding {
	argv := argvOf(s.Roles["server"].PID)
	at := listeners(launch.Launcher(dir), s.Roles["anchor"].PID, s.Roles["server"].PID)
	return doctor.Exposure(at, slices.Contains(argv, "--insecure"), flagOf(argv, "--token-file") != "")
}

// secretFinding judges the files with secrets that the server was given.
func secretFinding(server int) doctor.Finding {
	f := doctor.Finding{Name: "secrets", State: doctor.OK, Detail: "none but the daemon's own"}
	var read []string
	argv := argvOf(server)
	for _, flag := range []string{"--token-file", "--providers", "--on-exit-secret"} {
		path := flagOf(argv, flag)
		if path == "" {
			continue
		}
		read = append(read, path)
		_, shared, err := readSecret(path)
		if err != nil {
			f.State, f.Detail, f.Mend = doctor.Broken, flag+": "+err.Error(), "write it again, with mode 0600: the next server will need it"
			return f
		}
		if shared != nil {
			f.State, f.Detail, f.Mend = doctor.Broken, shared.Error(), "chmod 600 "+path
			return f
		}
	}
	if len(read) > 0 {
		f.Detail = strings.Join(read, ", ")
	}
	return f
}

// portFinding judges whether the port of tend serve is free, or the daemon's own.
func portFinding(dir string) doctor.Finding {
	const address = "127.0.0.1:49983"
	f := doctor.Finding{Name: "port", State: doctor.OK, Detail: address + " is free"}
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		l.Close()
	case !errors.Is(err, syscall.EADDRINUSE):
		f.State, f.Detail, f.Mend = doctor.Limited, err.Error(), "tend serve --listen ADDR, with an ADDR of this machine"
	case slices.ContainsFunc(listeners(launch.Launcher(dir)), func(a netip.AddrPort) bool { return a.Port() == 49983 }):
		f.Detail = address + " is this daemon's"
	default:
		f.State, f.Detail, f.Mend = doctor.Limited, address+", where tend serve listens by default, is in use by another program",
			"ss -ltnp 'sport = :49983' shows whose it is; tend serve --listen 127.0.0.1:0 --port-file FILE takes another"
	}
	return f
}

// listeners are the TCP addresses that processes have sockets for, each once.
func listeners(pids ...int) (out []netip.AddrPort) {
	inodes := map[string]bool{}
	for _, pid := range pids {
		fds := fmt.Sprintf("/proc/%d/fd", pid)
		entries, _ := os.ReadDir(fds) // of a process that has ended: none
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil {
				inodes[to] = true
			}
		}
	}
	c, err := sockdiag.Open()
	if err != nil {
		return nil
	}
	defer c.Close()
	all, _ := c.Listening(0)
	for _, s := range all {
		if inodes["socket:["+strconv.FormatUint(s.Inode, 10)+"]"] && !slices.Contains(out, s.Local) {
			out = append(out, s.Local)
		}
	}
	return out
}

func argvOf(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(b), "\x00")
}

// flagOf is the value of a flag as serverArgs writes it; "": it is not given.
func flagOf(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}
