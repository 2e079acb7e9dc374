package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/cli/startup"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

type startupCmd struct {
	User   bool   `help:"A service of the calling user. Default for users other than root."`
	Group  string `placeholder:"GROUP" help:"Members of this group may use the system's daemon by its socket. They can then do all that root can."`
	Remove bool   `help:"Remove what tend startup has made. The daemon and its processes end."`
	Print  bool   `help:"Print the units, and change nothing."`
}

// startupFacts is the JSON of "tend startup".
type startupFacts struct {
	Units  []string `json:"units"` // paths that were written or removed
	Socket string   `json:"socket"`
	// Linger: the user's daemon starts with the machine, not with the first login.
	Linger bool `json:"linger"`
}

// systemUnits is where an administrator's units are, and packagedUnit that of the packages.
const (
	systemUnits  = "/etc/systemd/system"
	packagedUnit = "/usr/lib/systemd/system/tend.service"
)

func (c *startupCmd) Run(ctx context.Context, inv *invocation) error {
	own := c.User || os.Geteuid() != 0
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	units, dir, err := c.units(inv, exe, own)
	if err != nil {
		return err
	}
	if c.Print {
		for _, u := range units {
			path := filepath.Join(dir, u.Name)
			var err error
			if inv.flags.JSON {
				err = printJSONLine(inv.out, map[string]string{"path": path, "text": u.Text})
			} else {
				_, err = fmt.Fprintf(inv.out, "# %s\n%s\n", path, u.Text)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("systemd does not run here, so it can start nothing; have what starts this machine or container run: tend serve --keep")
	}
	if strings.HasPrefix(exe, os.TempDir()+"/") {
		return fmt.Errorf("this program is %s, which does not last; install it first (make install, or copy it to /usr/local/bin)", exe)
	}
	facts := startupFacts{Units: []string{}}
	for _, u := range units {
		facts.Units = append(facts.Units, filepath.Join(dir, u.Name))
	}
	ctl := systemctl{ctx, own}
	if c.Remove {
		return c.remove(inv, ctl, &facts)
	}
	for _, u := range units {
		path := filepath.Join(dir, u.Name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = atomicfile.Synced(path, []byte(u.Text), 0o644)
		}
		if err != nil {
			return fmt.Errorf("write a unit: %w", err)
		}
	}
	names := []string{"tend.service"}
	if !own {
		names = []string{"tend.socket", "tend.service"}
	}
	if err := ctl.run("daemon-reload"); err != nil {
		return err
	}
	if err := ctl.run(append([]string{"enable"}, names...)...); err != nil {
		return err
	}
	// Sockets get their group when they are opened; restarts lose nothing.
	if err := ctl.run(append([]string{"restart"}, names...)...); err != nil {
		return fmt.Errorf("%w (journalctl -u tend says why)", err)
	}
	if facts.Socket, err = inv.home().Socket(); err != nil {
		return err
	}
	text := "tend starts with this machine, and services come back with it; tend startup --remove ends that"
	if own {
		facts.Linger = linger(ctx, inv)
		if !facts.Linger {
			text = "tend starts with your first login; for a start with the machine root runs: loginctl enable-linger " + userName()
		}
	}
	return inv.answer(printJSON, facts, text)
}

// units are those to write, and the directory for them.
func (c *startupCmd) units(inv *invocation, exe string, own bool) (units []startup.Unit, dir string, err error) {
	if c.Group != "" {
		if own {
			return nil, "", usageError("--group is for the system's daemon; run it as root")
		}
		if _, err := groupID(c.Group); err != nil {
			return nil, "", err
		}
	}
	if own {
		config := cmp.Or(inv.getenv("XDG_CONFIG_HOME"), filepath.Join(inv.getenv("HOME"), ".config"))
		if !filepath.IsAbs(config) {
			return nil, "", errors.New("HOME is not set, so there is no directory for units of a user")
		}
		return startup.User(exe), filepath.Join(config, "systemd/user"), nil
	}
	if _, err := os.Stat(packagedUnit); errors.Is(err, fs.ErrNotExist) {
		units = startup.System(exe)
	} else {
		exe = "/usr/bin/tend"
	}
	if c.Group != "" {
		units = append(units, startup.Group(exe, c.Group)...)
	} else if c.Remove {
		units = append(units, startup.Group(exe, "root")...)
	}
	return units, systemUnits, nil
}

func (c *startupCmd) remove(inv *invocation, ctl systemctl, facts *startupFacts) error {
	names := []string{"tend.service"}
	if !ctl.user {
		names = append(names, "tend.socket")
	}
	if err := ctl.run(append([]string{"disable", "--now"}, names...)...); err != nil {
		return err
	}
	removed := facts.Units[:0]
	for _, path := range facts.Units {
		switch err := os.Remove(path); {
		case err == nil:
			removed = append(removed, path)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // if it is a directory of a unit's, and empty
	}
	facts.Units = removed
	if err := ctl.run("daemon-reload"); err != nil {
		return err
	}
	return inv.answer(printJSON, facts, "tend starts no more by itself")
}

// systemctl runs it for the system, or for the calling user.
type systemctl struct {
	ctx  context.Context
	user bool
}

func (s systemctl) run(args ...string) error {
	_, err := s.ask(args...)
	return err
}

func (s systemctl) ask(args ...string) (string, error) {
	if s.user {
		args = append([]string{"--user"}, args...)
	}
	cmd := exec.CommandContext(s.ctx, "systemctl", args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint(os.Geteuid())
}

// linger has the user's services start with the machine, if that is allowed.
func linger(ctx context.Context, inv *invocation) bool {
	out, err := exec.CommandContext(ctx, "loginctl", "enable-linger", userName()).CombinedOutput()
	if err != nil {
		inv.note("loginctl enable-linger: %s", strings.TrimSpace(string(out)))
	}
	return err == nil
}

type onStopCmd struct {
	User bool `hidden:"" help:"The unit is of this user's systemd."`
}

// Run is what systemd runs before it ends tend.service. It ends the processes if systemd was asked
// to stop the service, also because the machine goes down. For a restart, and when the launcher has
// died, nothing may end: the next start takes over what runs. If it cannot be found out,
// nothing ends.
func (c *onStopCmd) Run(ctx context.Context, inv *invocation) error {
	ctl := systemctl{ctx, c.User}
	jobs, err := ctl.ask("list-jobs", "--no-legend", "--full", "tend.service")
	if err != nil {
		return err
	}
	stops := false
	for line := range strings.Lines(jobs) {
		f := strings.Fields(line) // JOB UNIT TYPE STATE
		stops = stops || len(f) > 2 && f[1] == "tend.service" && f[2] == "stop"
	}
	if !stops {
		return nil
	}
	if !c.User {
		// Else the next caller would start it again.
		if err := ctl.run("--no-block", "stop", "tend.socket"); err != nil {
			inv.note("%v", err)
		}
	}
	return (&shutdownCmd{}).end(ctx, inv)
}
