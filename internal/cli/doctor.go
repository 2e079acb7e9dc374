package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/cli/doctor"
	"github.com/tend-run/tend/internal/lib/backoff"
)

// doctorFacts is the JSON of "tend doctor".
type doctorFacts struct {
	Healthy bool `json:"healthy"` // nothing is broken
	// Asked is who was asked for what the roles try by themselves: "daemon"; "trial", a
	// daemon that was started for it and has ended; "nobody", which is broken.
	Asked  string           `json:"asked"`
	Checks []doctor.Finding `json:"checks"`
}

// doctorCmd looks for what is wrong.
type doctorCmd struct{}

func (c *doctorCmd) Run(ctx context.Context, inv *invocation) error {
	done := inv.progress("looking")
	facts, err := c.check(ctx, inv)
	done()
	if err != nil {
		return err
	}
	facts.Healthy = doctor.Healthy(facts.Checks)
	if inv.flags.JSON {
		err = printJSON(inv.out, facts)
	} else {
		err = facts.print(inv)
	}
	if err == nil && !facts.Healthy {
		err = statusError(1)
	}
	return err
}

// check makes all checks. A daemon elsewhere is asked what it knows; nothing on this machine
// is checked then.
func (c *doctorCmd) check(ctx context.Context, inv *invocation) (*doctorFacts, error) {
	if inv.flags.URL != "" {
		s, err := inv.settled(ctx)
		if err != nil {
			return nil, err
		}
		return &doctorFacts{Asked: "daemon", Checks: append([]doctor.Finding{versionFinding(s.Version)}, ofStatus(s)...)}, nil
	}
	dir, err := inv.stateDir()
	if err != nil {
		return nil, err
	}
	return checkHere(ctx, inv, dir)
}

// settleTime is how long roles that have just begun are given to be as they should.
const settleTime = 10 * time.Second

// settled is the status of the daemon, asked again while what is broken in it may pass.
func (inv *invocation) settled(ctx context.Context) (*statusFacts, error) {
	d, err := inv.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for last := time.Now().Add(settleTime); ; {
		s, err := d.facts(ctx)
		if err != nil || !doctor.Passing(s.Promises) || time.Now().After(last) {
			return s, err
		}
		if !backoff.Wait(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// ofStatus judges what a daemon says of itself.
func ofStatus(s *statusFacts) []doctor.Finding {
	d := s.Parts["driver"]
	out := append(doctor.Isolation(d["isolation"], d["missing"], d["way"]), doctor.Promises(s.Promises)...)
	out = append(out, doctor.Images(d)...)
	return append(out, doctor.Elsewhere(os.Getenv("PATH"), filepath.SplitList(d["base_paths"]))...)
}

// versionFinding judges the version of a daemon beside this program's.
func versionFinding(is string) doctor.Finding {
	f := doctor.Finding{Name: "version", State: doctor.OK, Detail: is}
	if own := versionText(); is != own {
		f.State, f.Detail, f.Mend = doctor.Limited, fmt.Sprintf("the daemon is %s, and this tend %s", is, own), "tend upgrade"
	}
	return f
}

// socketFinding judges the socket of the user's own daemon.
func socketFinding(inv *invocation) doctor.Finding {
	f := doctor.Finding{Name: "socket", State: doctor.OK}
	path, err := inv.home().Socket()
	if err != nil {
		f.State, f.Detail, f.Mend = doctor.Broken, err.Error(), "tend serve --socket PATH, with a shorter PATH"
		return f
	}
	f.Detail = path
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.Detail += " is not there yet"
	case err != nil:
		f.State, f.Detail, f.Mend = doctor.Broken, err.Error(), "tend serve --socket PATH, with a PATH that this user may use"
	case fi.Mode().Type() != os.ModeSocket:
		f.State, f.Detail, f.Mend = doctor.Broken, path+" is no socket", "rm "+path+", after a look at what it is"
	case fi.Mode().Perm()&0o077 != 0:
		f.State, f.Detail, f.Mend = doctor.Broken,
			fmt.Sprintf("%s has mode %04o: other users can connect, though the daemon asks the kernel who they are", path, fi.Mode().Perm()),
			"chmod 600 "+path
	}
	return f
}

// toolFindings judge what repairs of services call.
func toolFindings() (out []doctor.Finding) {
	for _, tool := range []struct{ name, use string }{
		{"git", "repairs of services have no checkpoint, and change no file"}, {"node", "services of Node.js are not repaired"},
	} {
		f := doctor.Finding{Name: "tool_" + tool.name, State: doctor.OK}
		path, err := exec.LookPath(tool.name)
		if f.Detail = path; err != nil {
			f.State, f.Detail, f.Mend = doctor.Limited, "is not in PATH: "+tool.use, "apt-get install "+strings.Replace(tool.name,
				"node", "nodejs", 1)
		}
		out = append(out, f)
	}
	return out
}

// unitFindings judge tend's unit of systemd, if there is one.
func unitFindings() []doctor.Finding {
	for _, dir := range []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		path := filepath.Join(dir, "tend.service")
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := string(b)
		over, _ := filepath.Glob("/etc/systemd/system/tend.service.d/*.conf") // the pattern is well-formed
		for _, path := range over {
			if b, err := os.ReadFile(path); err == nil {
				text += "\n" + string(b)
			}
		}
		return []doctor.Finding{doctor.Unit(path, text)}
	}
	return nil
}

func (s *doctorFacts) print(inv *invocation) error {
	colour := inv.colours(inv.out)
	rows := make([][]string, len(s.Checks))
	for i, f := range s.Checks {
		rows[i] = []string{string(f.State), printable(f.Name), printable(f.Detail)}
	}
	for i, line := range alignRows(rows) {
		switch s.Checks[i].State {
		case doctor.Limited:
			line = paint(colour, yellow, line)
		case doctor.Broken:
			line = paint(colour, red, line)
		}
		if _, err := fmt.Fprintln(inv.out, line); err != nil {
			return err
		}
		if mend := s.Checks[i].Mend; mend != "" {
			if _, err := fmt.Fprintln(inv.out, "         "+printable(mend)); err != nil {
				return err
			}
		}
	}
	return nil
}
