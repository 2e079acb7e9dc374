package doctor

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// sound is a machine on which all is well.
func sound() *Machine {
	return &Machine{
		Caps: 1<<41 - 1, Files: 1024, FilesMost: 1 << 20, Tasks: 32768, TasksBy: "kernel.pid_max", UserNamespaces: 1 << 16, Dir: "/var/lib/tend",
		Disk: Disk{Magic: 0xef53, Free: 100 << 30, Total: 200 << 30, Inodes: 1 << 20, InFree: 1 << 19}, Clock: written.Add(time.Hour),
	}
}

func TestEachThingThatIsWrongWithAMachineIsFound(t *testing.T) {
	for _, f := range sound().Findings() {
		if f.State != OK || f.Mend != "" {
			t.Errorf("a sound machine: %+v", f)
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(*Machine)
		check string
		state State
		says  string // in detail and mend
	}{
		{"few files", func(m *Machine) { m.FilesMost = 1024 }, "open_files", Limited, "ulimit -Hn"},
		{"few pids", func(m *Machine) { m.Tasks = 500 }, "tasks", Limited, "sysctl -w kernel.pid_max="},
		{"few processes of a user", func(m *Machine) { m.Tasks, m.TasksBy = 500, "RLIMIT_NPROC" }, "tasks", Limited, "ulimit -u"},
		{"few tasks in the group", func(m *Machine) { m.Tasks, m.TasksBy = 100, "/sys/fs/cgroup/a/pids.max" }, "tasks", Limited, "echo max > /sys/fs/cgroup/a/pids.max"},
		{"no root", func(m *Machine) { m.UID = 1000 }, "capabilities", Limited, "sudo tend serve"},
		{"root without CAP_SYS_ADMIN", func(m *Machine) { m.Caps &^= 1 << 21 }, "capabilities", Limited, "--cap-add SYS_ADMIN"},
		{"no user namespaces", func(m *Machine) { m.UserNamespaces = 0 }, "user_namespaces", Limited, "sysctl -w user.max_user_namespaces="},
		{"AppArmor keeps them", func(m *Machine) { m.UID, m.Restricted = 1000, "kernel.apparmor_restrict_unprivileged_userns" }, "user_namespaces", Limited, "restrict_unprivileged_userns=0"},
		{"autogroup", func(m *Machine) { m.Autogroup = true }, "sched_autogroup", Limited, "sysctl -w kernel.sched_autogroup_enabled=0"},
		{"tmpfs", func(m *Machine) { m.Disk.Magic = 0x01021994 }, "filesystem", Limited, "lost when the machine restarts"},
		{"nfs", func(m *Machine) { m.Disk.Magic = 0x6969 }, "filesystem", Limited, "on a network"},
		{"the layer of a container", func(m *Machine) { m.Disk.Magic = 0x794c7630 }, "filesystem", Limited, "a volume"},
		{"a full disk", func(m *Machine) { m.Disk.Free = 1 << 20 }, "disk_space", Broken, "tend rm --finished"},
		{"a disk that is nearly full", func(m *Machine) { m.Disk.Free = 500 << 20 }, "disk_space", Limited, "500 MiB of 200 GiB"},
		{"no inodes", func(m *Machine) { m.Disk.InFree = 3 }, "disk_space", Broken, "3 of 1048576 inodes"},
		{"a clock of 1970", func(m *Machine) { m.Clock = time.Unix(100, 0) }, "clock", Broken, "set-ntp"},
		{"a clock that nobody sets", func(m *Machine) { m.Unsynced = true }, "clock", Limited, "set-ntp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sound()
			c.spoil(m)
			all := m.Findings()
			for _, f := range all {
				if f.Name != c.check {
					continue
				}
				if f.State != c.state || f.Mend == "" || !strings.Contains(f.Detail+" "+f.Mend, c.says) {
					t.Errorf("%+v; want %s, and %q", f, c.state, c.says)
				}
			}
			if Healthy(all) != (c.state != Broken) {
				t.Errorf("healthy is %v", Healthy(all))
			}
		})
	}
}

func TestWhatADaemonSaysIsJudged(t *testing.T) {
	all := Promises(map[string]Promise{
		"keeper_answers": {Kept: false, Detail: "it does not"}, "kill_reaches_tree": {Kept: false, Detail: "no cgroup2"}, "retention_frees_space": {Kept: true, Detail: "hole"},
		"output_survives_power_loss": {Kept: false, Detail: "nothing is forced; tend serve --fsync=exit"}, "of_another_version": {Kept: false, Detail: "new"},
	})
	want := map[string]State{"keeper_answers": Broken, "kill_reaches_tree": Limited, "retention_frees_space": OK, "output_survives_power_loss": OK, "of_another_version": Limited}
	for _, f := range all {
		if f.State != want[f.Name] || f.State == Broken && f.Mend == "" {
			t.Errorf("%+v; want %s", f, want[f.Name])
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}

	all = Isolation("pid mount", "freeze: no cgroup; not even v1; memory: none: at all; outgoing: nf_tables is missing", "")
	got := ""
	for _, f := range all {
		got += f.Name + "=" + f.Detail + "|"
	}
	if got != "isolation=pid mount|isolation_freeze=no cgroup; not even v1|isolation_memory=none: at all|isolation_outgoing=nf_tables is missing|" {
		t.Error(got)
	}
	for _, missing := range []string{"", "all: Linux 5.19 is needed"} {
		if f := Isolation("none", missing, ""); len(f) != 1 || f[0].State != Limited || f[0].Mend == "" {
			t.Errorf("%q: %+v", missing, f)
		}
	}
}

func TestTheWayIsJudged(t *testing.T) {
	for way, want := range map[string]string{
		"ids=65536 owners=idmap proc=inside":  "isolation=pid; ids=65536 owners=idmap proc=inside|",
		"ids=65536 owners=nobody proc=inside": "isolation=pid; ids=65536 owners=nobody proc=inside|isolation_base=",
		"ids=1 owners=nobody":                 "isolation=pid; ids=1 owners=nobody|",
	} {
		got := ""
		for _, f := range Isolation("pid", "", way) {
			got += f.Name + "="
			if f.State == OK {
				got += f.Detail + "|"
			} else if f.Mend == "" {
				t.Errorf("%+v says not what to do", f)
			}
		}
		if got != want {
			t.Errorf("%s: %s; want %s", way, got, want)
		}
	}
}

func TestExposure(t *testing.T) {
	near, far := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::]:1")
	for _, c := range []struct {
		at              []netip.AddrPort
		insecure, token bool
		state           State
		says            string
	}{
		{nil, true, false, OK, "no TCP"},
		{[]netip.AddrPort{near}, false, false, OK, "this user and root"},
		{[]netip.AddrPort{near}, true, false, Limited, "web page"},
		{[]netip.AddrPort{near, far}, true, true, Broken, "everybody who reaches [::]:1"},
		{[]netip.AddrPort{far}, false, true, OK, "with a token"},
	} {
		if f := Exposure(c.at, c.insecure, c.token); f.State != c.state || !strings.Contains(f.Detail, c.says) {
			t.Errorf("%v: %+v", c, f)
		}
	}
}

func TestAUnitOfSystemd(t *testing.T) {
	for text, state := range map[string]State{
		"[Service]\nExecStart=/usr/bin/tend serve --keep\nKillMode=process\nDelegate=yes\n": OK,
		"[Service]\nExecStart=/usr/bin/tend serve --keep\nDelegate=yes\n":                   Broken,
		"[Service]\nExecStart=/usr/bin/tend serve\n":                                        Limited,
		"[Service]\nExecStart=/usr/bin/tend serve\n\n[Service]\nDelegate = yes\n":           OK,
	} {
		if f := Unit("/u", text); f.State != state || (f.Mend == "") != (state == OK) {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

func TestImages(t *testing.T) {
	for _, c := range []struct {
		bytes, most string
		state       State
		says        string
	}{
		{"100", "0", OK, "3, with files of 100 B"}, {"300", "0", Limited, "more than a fifth"}, {"300", "500", OK, "of at most 500 B"},
	} {
		f := Images(map[string]string{"images": "3", "image_bytes": c.bytes, "image_most": c.most, "image_disk": "1000"})
		if len(f) != 1 || f[0].State != c.state || !strings.Contains(f[0].Detail, c.says) || (f[0].Mend == "") != (c.state == OK) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
	if f := Images(map[string]string{}); f != nil {
		t.Errorf("of a daemon without images: %+v", f)
	}
}
