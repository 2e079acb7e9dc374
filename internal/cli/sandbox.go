package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// sandboxCmd is the part of the grammar about sandboxes. A verb that makes one starts
// the user's daemon if there is none, as tend run does.
type sandboxCmd struct {
	Create   sandboxCreateCmd   `cmd:"" aliases:"new" help:"Create a sandbox and print its name."`
	Run      sandboxRunCmd      `cmd:"" help:"Create a sandbox and run a command in it; --rm removes it afterwards."`
	Exec     sandboxExecCmd     `cmd:"" help:"Run a command in a sandbox."`
	Shell    sandboxShellCmd    `cmd:"" aliases:"sh" help:"Open a shell in a sandbox, with a terminal." nojson:"it is for a terminal; tend sandbox exec --json runs a command"`
	Cp       sandboxCpCmd       `cmd:"" signals:"int,term,hup" aliases:"copy" help:"Copy files and directories into a sandbox, or out of one."`
	Ls       sandboxLsCmd       `cmd:"" aliases:"list,ps" help:"List sandboxes."`
	Inspect  sandboxInspectCmd  `cmd:"" aliases:"info,show" help:"Print all that is known of sandboxes, as JSON."`
	URL      sandboxURLCmd      `cmd:"" name:"url" aliases:"port" help:"Print the URL of a port of a sandbox."`
	Logs     sandboxLogsCmd     `cmd:"" signals:"int,term" help:"Print the output of a sandbox's processes."`
	Stats    sandboxStatsCmd    `cmd:"" signals:"int,term" aliases:"metrics,top" help:"Show what sandboxes use: CPU, memory, disk, tasks."`
	Start    sandboxStartCmd    `cmd:"" help:"Start stopped sandboxes, and resume paused ones."`
	Stop     sandboxStopCmd     `cmd:"" help:"End the processes of sandboxes and keep their files."`
	Pause    sandboxPauseCmd    `cmd:"" aliases:"freeze" help:"Pause the processes of sandboxes."`
	Resume   sandboxResumeCmd   `cmd:"" aliases:"unpause" help:"Resume paused sandboxes."`
	Update   sandboxUpdateCmd   `cmd:"" aliases:"set" help:"Change the name, the remaining time or the labels of a sandbox."`
	Snapshot sandboxSnapshotCmd `cmd:"" help:"Save the files of a sandbox for later ones; list and remove snapshots."`
	Fork     sandboxForkCmd     `cmd:"" help:"Create sandboxes with the current files of another one."`
	Rm       sandboxRmCmd       `cmd:"" aliases:"remove,delete,kill" help:"End sandboxes and remove all that belongs to them."`
}

// creationFlags say what a sandbox is that is made.
type creationFlags struct {
	Template  string `placeholder:"NAME" complete:"template" help:"The template whose files it starts with. Default: the machine's own programs and libraries."`
	Snapshot  string `placeholder:"NAME" complete:"snapshot" help:"The snapshot whose files it starts with."`
	Image     string `placeholder:"NAME" complete:"image" help:"The image whose files it starts with: a name such as python:3, which is fetched if it is not here, or an ID."`
	Isolation string `enum:"full,none,default" default:"full" placeholder:"HOW" help:"full: it sees neither processes nor files outside; none: a directory and a list of processes on the machine itself; default: the daemon's. Default: full."`

	Cwd string `short:"w" aliases:"workdir" placeholder:"DIR" help:"Working directory inside."`
	envFlags
	User string `short:"u" placeholder:"USER" help:"User inside: a name, uid or uid:gid."`

	Memory string  `short:"m" placeholder:"SIZE" help:"Limit of memory, such as 512m."`
	CPUs   float64 `name:"cpus" placeholder:"N" help:"Limit of CPU time; 0.5 is half of one CPU."`
	Pids   int64   `aliases:"tasks,pids-limit" placeholder:"N" help:"Limit of processes and threads together."`
	Disk   string  `placeholder:"SIZE" help:"Limit of disk space, 16MiB or more; the number of files is limited in proportion. Default: that of tend serve --sandbox-disk, else none."`

	Network string   `enum:"default,none,host,own" default:"default" placeholder:"HOW" help:"none: it reaches only itself; host: it reaches the machine and what the machine reaches; own: it reaches the outside, never the machine. Default: the daemon's."`
	Allow   []string `placeholder:"HOST" help:"Allow outgoing connections only to this host, *.DOMAIN, address or CIDR, with :PORT or without; needs --network own. Repeatable."`
	Deny    []string `placeholder:"HOST" help:"Deny outgoing connections there. Repeatable."`
	Public  bool     `help:"Its ports are served to callers without its token."`
	Share   []string `short:"v" aliases:"volume" placeholder:"SRC[:DST[:ro]]" help:"A directory of the daemon's machine that is visible inside; with :copy in place of :ro what programs change there stays in the sandbox. Repeatable."`

	Label map[string]string `short:"l" aliases:"metadata" placeholder:"K=V" help:"A label. Repeatable."`
}

func (c *creationFlags) spec(inv *invocation, local bool) (s tend.SandboxSpec, err error) {
	s = tend.SandboxSpec{
		Template: c.Template, Snapshot: c.Snapshot, Image: c.Image, User: c.User, Dir: c.Cwd, Metadata: c.Label,
		Size:      tend.SandboxSize{CPUs: c.CPUs, Tasks: c.Pids},
		Isolation: valueOf(c.Isolation, tend.IsolationFull),
		Network:   tend.SandboxNetwork{Mode: valueOf(c.Network, tend.NetworkOwn), Allow: c.Allow, Deny: c.Deny, Public: c.Public},
	}
	if given := len(slices.DeleteFunc([]string{c.Template, c.Snapshot, c.Image}, func(s string) bool { return s == "" })); given > 1 {
		return s, usageError("--template, --snapshot and --image each say what its files are; give one of them")
	}
	if c.Cwd != "" && !strings.HasPrefix(c.Cwd, "/") {
		return s, usageError(fmt.Sprintf("--cwd %s: give an absolute path, as it is inside the sandbox", c.Cwd))
	}
	if c.CPUs < 0 || c.Pids < 0 {
		return s, usageError("--cpus and --pids are not negative; 0 is no limit")
	}
	if s.Size.Memory, err = sizeOf("--memory", c.Memory); err != nil {
		return s, err
	}
	if s.Size.Disk, err = sizeOf("--disk", c.Disk); err != nil {
		return s, err
	}
	for _, text := range c.Share {
		share, err := shareOf(text, local)
		if err != nil {
			return s, err
		}
		s.Shares = append(s.Shares, share)
	}
	s.Env, err = c.environment(inv)
	return s, err
}

// shareOf reads SRC[:DST[:ro]], or with copy in place of ro. A source of this machine may be relative.
func shareOf(text string, local bool) (tend.SandboxShare, error) {
	var s tend.SandboxShare
	rest := text
	if before, ok := strings.CutSuffix(rest, ":ro"); ok {
		rest, s.ReadOnly = before, true
	} else if before, ok := strings.CutSuffix(rest, ":copy"); ok {
		rest, s.Copy = before, true
	} else {
		rest = strings.TrimSuffix(rest, ":rw")
	}
	s.Source, s.Target, _ = strings.Cut(rest, ":")
	if local && s.Source != "" && !filepath.IsAbs(s.Source) {
		var err error
		if s.Source, err = filepath.Abs(s.Source); err != nil {
			return s, err
		}
	}
	if !strings.HasPrefix(s.Source, "/") || s.Target != "" && !strings.HasPrefix(s.Target, "/") || strings.Contains(s.Target, ":") {
		return s, usageError(fmt.Sprintf("--share %s: write SOURCE, SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:copy with absolute paths",
			text))
	}
	return s, nil
}

// unmade says why a sandbox could not be made, and what to do.
func (p *creationFlags) unmade(err error) error {
	if errors.Is(err, process.ErrNotFound) {
		switch {
		case p.Template != "" && strings.HasPrefix(err.Error(), "template "):
			return &keyError{fmt.Sprintf("there is no template %.80q; tend template ls lists them, and tend template build makes one",
				p.Template), err}
		case p.Image != "" && strings.HasPrefix(err.Error(), "image "):
			return p.noImage(err)
		case p.Snapshot != "" && strings.HasPrefix(err.Error(), "snapshot "):
			return &keyError{fmt.Sprintf("there is no snapshot %.80q; tend sandbox snapshot ls lists them", p.Snapshot), err}
		}
	}
	if err != nil && errors.Is(err, process.ErrUnsupported) && strings.HasPrefix(err.Error(), "isolation:") {
		return fmt.Errorf("%w (tend status names the available layers; --isolation none creates a sandbox without isolation, on the machine itself)", err)
	}
	return err
}

func (p *creationFlags) noImage(err error) error {
	return &keyError{fmt.Sprintf("there is no image %.200q; tend image ls lists them, and tend image pull fetches one",
		p.Image), err}
}

type sandboxCreateCmd struct {
	creationFlags

	Timeout    time.Duration `placeholder:"1h" help:"End it after this long."`
	OnTimeout  string        `name:"on-timeout" enum:"rm,kill,pause" default:"rm" placeholder:"WHAT" help:"What --timeout does: rm or pause. Default: rm."`
	Idle       time.Duration `placeholder:"10m" help:"Stop it when nobody has used it and nothing ran in it for this long."`
	RmStopped  time.Duration `name:"rm-stopped" placeholder:"24h" help:"Remove it this long after it was stopped."`
	Disposable bool          `help:"Remove its files when it stops."`
	Wake       bool          `help:"While it is paused, traffic for it resumes it."`

	Name string `arg:"" optional:"" help:"Its name. Default: a generated one."`
}

func (c *sandboxCreateCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Timeout < 0 || c.Idle < 0 || c.RmStopped < 0 {
		return usageError("--timeout, --idle and --rm-stopped are not negative; leave them out for no end")
	}
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return err
	}
	s, err := c.spec(inv, d.local)
	if err != nil {
		return err
	}
	if c.Image != "" {
		if _, err := inv.present(ctx, d, c.Image); err != nil {
			return err
		}
	}
	s.Name, s.Timeout, s.PauseAtTimeout = c.Name, c.Timeout, c.OnTimeout == "pause"
	s.IdleTTL, s.DeleteAfterStop, s.Disposable, s.Wake = c.Idle, c.RmStopped, c.Disposable, c.Wake
	sandbox, err := d.CreateSandbox(ctx, s)
	if err != nil {
		return c.unmade(err)
	}
	info, err := sandbox.Info(ctx)
	if err != nil {
		return err
	}
	return inv.announceSandbox(&info)
}

// announceSandbox prints what a person or a script needs to find a sandbox again.
func (inv *invocation) announceSandbox(info *tend.SandboxInfo) error {
	return inv.answer(printJSON, sandboxFactsOf(info), nameOfSandbox(info))
}

type sandboxLsCmd struct {
	Quiet bool              `short:"q" help:"Print only names, one on each line."`
	State []string          `sep:"," enum:"starting,ready,stopped,failed,paused" placeholder:"STATE" help:"Only those in this state: ready, paused, stopped, starting or failed. Repeatable."`
	Label map[string]string `short:"l" aliases:"metadata" placeholder:"K=V" help:"Only those with this label. Repeatable."`
}

func (c *sandboxLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	f := tend.SandboxFilter{Metadata: c.Label}
	for _, word := range c.State {
		f.States = append(f.States, valueOf(word, tend.SandboxPaused))
	}
	all, err := d.Sandboxes(ctx, f)
	if err != nil {
		return err
	}
	now := time.Now()
	rows := [][]string{{"NAME", "ID", "STATE", "ISOLATION", "FROM", "AGE", "LEFT"}}
	for i := range all {
		in := &all[i]
		left := "-"
		if !in.Deadline.IsZero() {
			left = age(in.Deadline.Sub(now))
		}
		rows = append(rows, []string{
			printable(nameOfSandbox(in)), printable(in.ID[:min(len(in.ID), 13)]), in.State.String(), in.Isolation.String(),
			origin(in), age(now.Sub(in.Created)), left,
		})
	}
	return inv.printList(mapped(all, sandboxFactsOf), rows, c.Quiet)
}

// origin is what the files of a sandbox were at first.
func origin(in *tend.SandboxInfo) string {
	switch {
	case in.Snapshot != "":
		return "snapshot " + printable(in.Snapshot)
	case in.Template != "":
		return printable(in.Template)
	case in.Image != "":
		return "image " + shortImage(in.Image)
	}
	return "-"
}

type sandboxInspectCmd struct {
	Names []string `arg:"" name:"sandbox" complete:"sandbox" help:"The sandboxes."`
}

func (c *sandboxInspectCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all := []sandboxInspectFacts{}
	failed := each(c.Names, func(name string) error {
		_, info, err := d.sandbox(ctx, name)
		if err == nil {
			all = append(all, sandboxInspectFacts{sandboxFactsOf(&info), noNull(info.Env)})
		}
		return err
	})
	if err := printJSON(inv.out, all); err != nil {
		return err
	}
	return failed
}
