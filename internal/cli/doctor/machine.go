package doctor

import (
	"fmt"
	"strings"
	"time"
)

// Machine is what the kernel says of itself and of the state directory.
type Machine struct {
	// UID is the effective user, Caps its effective capabilities (capabilities(7)).
	UID  int
	Caps uint64
	// Files and FilesMost are the soft and the hard RLIMIT_NOFILE. The roles raise the
	// one to the other.
	Files, FilesMost uint64
	// Tasks is how many processes and threads there may be, and TasksBy what says so.
	Tasks   int64
	TasksBy string
	// Autogroup: the scheduler shares the CPU between sessions.
	Autogroup bool
	// UserNamespaces is user.max_user_namespaces; -1: not known. Restricted: AppArmor
	// or a sysctl keeps users that are not root from having any.
	UserNamespaces int64
	Restricted     string // name of the sysctl; "": nothing does
	// Dir is the state directory, or where it will be made.
	Dir  string
	Disk Disk
	// Clock is the time of day. Unsynced: the kernel knows of nobody who sets it.
	Clock    time.Time
	Unsynced bool
}

// Disk is a filesystem.
type Disk struct {
	Magic                       int64 // statfs(2)
	Free, Total, Inodes, InFree uint64
}

// Findings judges the machine.
func (m *Machine) Findings() []Finding {
	return []Finding{m.files(), m.tasks(), m.capabilities(), m.namespaces(), m.autogroup(), m.filesystem(), m.disk(), m.clock()}
}

const (
	leastFiles = 4096 // room for about a thousand processes
	leastTasks = 1024
)

func (m *Machine) files() Finding {
	f := Finding{Name: "open_files", State: OK, Detail: fmt.Sprintf("%d a role, three for each process", m.FilesMost)}
	if m.FilesMost < leastFiles {
		f.State, f.Mend = Limited,
			"ulimit -Hn 65536 as root, before tend serve (LimitNOFILE=65536 in a systemd unit, --ulimit nofile=65536 of docker)"
	}
	return f
}

func (m *Machine) tasks() Finding {
	f := Finding{Name: "tasks", State: OK, Detail: fmt.Sprintf("%d processes and threads, by %s", m.Tasks, m.TasksBy)}
	if m.Tasks == 0 {
		f.Detail = "no limit is known"
	} else if m.Tasks < leastTasks {
		f.State = Limited
		switch {
		case strings.HasPrefix(m.TasksBy, "kernel."):
			f.Mend = "sysctl -w " + m.TasksBy + "=65536"
		case m.TasksBy == "RLIMIT_NPROC":
			f.Mend = "ulimit -u 65536 as root, before tend serve (LimitNPROC=65536 in a systemd unit)"
		default:
			f.Mend = "echo max > " + m.TasksBy + " (TasksMax=infinity in a systemd unit, --pids-limit -1 of docker)"
		}
	}
	return f
}

// needed are the capabilities that root uses, by their numbers.
var needed = []struct {
	bit  uint
	name string
	use  string
}{
	{0, "CHOWN", "files of users"}, {1, "DAC_OVERRIDE", "files of users"}, {3, "FOWNER", "files of users"},
	{5, "KILL", "processes of users"}, {6, "SETGID", "processes of users"}, {7, "SETUID", "processes of users"},
	{12, "NET_ADMIN", "networks of sandboxes"}, {19, "SYS_PTRACE", "ports of users' processes"},
	{21, "SYS_ADMIN", "isolated sandboxes"}, {24, "SYS_RESOURCE", "limits above those of tend"}, {27, "MKNOD", "layers of templates"},
}

func (m *Machine) capabilities() Finding {
	f := Finding{Name: "capabilities", State: OK, Detail: "root with all that tend uses"}
	if m.UID != 0 {
		return Finding{Name: f.Name, State: Limited,
			Detail: fmt.Sprintf("tend runs as uid %d: processes, and programs in sandboxes, are this user's", m.UID), Mend: "sudo tend serve"}
	}
	var names, uses, flags []string
	for _, c := range needed {
		if m.Caps&(1<<c.bit) == 0 {
			names, flags = append(names, "CAP_"+c.name), append(flags, "--cap-add "+c.name)
			if len(uses) == 0 || uses[len(uses)-1] != c.use {
				uses = append(uses, c.use)
			}
		}
	}
	if len(names) > 0 {
		f.State, f.Detail = Limited, "root without "+strings.Join(names, ", ")+": no "+strings.Join(uses, ", no ")
		f.Mend = "docker run " + strings.Join(flags, " ") + " (or --privileged); in a systemd unit take CapabilityBoundingSet away"
	}
	return f
}

func (m *Machine) namespaces() Finding {
	f := Finding{Name: "user_namespaces", State: OK, Detail: "allowed"}
	switch {
	case m.UserNamespaces == 0:
		f.State, f.Detail, f.Mend = Limited, "user.max_user_namespaces is 0: no sandbox can be isolated, and no command of a healer confined",
			"sysctl -w user.max_user_namespaces=65536"
	case m.Restricted != "" && m.UID != 0:
		f.State, f.Detail, f.Mend = Limited, m.Restricted+" keeps uid "+fmt.Sprint(m.UID)+
			" from having any: no sandbox is isolated, and commands of a healer's model are not confined, and so refused",
			"sysctl -w "+m.Restricted+"="+unrestricted[m.Restricted]
	}
	return f
}

// unrestricted are the values of sysctls with which users may have namespaces.
var unrestricted = map[string]string{"kernel.unprivileged_userns_clone": "1", "kernel.apparmor_restrict_unprivileged_userns": "0"}

func (m *Machine) autogroup() Finding {
	if !m.Autogroup {
		return Finding{Name: "sched_autogroup", State: OK, Detail: "off: niceness counts between all processes"}
	}
	return Finding{
		Name: "sched_autogroup", State: Limited,
		Detail: "on: each process that tend starts is a session, and its niceness counts inside of that alone",
		Mend:   "sysctl -w kernel.sched_autogroup_enabled=0",
	}
}

// filesystems that are known by their number, and what is wrong with them for a state
// directory.
var filesystems = map[int64]struct{ name, wrong string }{
	0xef53: {"ext4", ""}, 0x58465342: {"xfs", ""}, 0x9123683e: {"btrfs", ""}, 0x2fc12fc1: {"zfs", ""}, 0xf2f52010: {"f2fs", ""},
	0xca451a4e: {"bcachefs", ""},
	0x01021994: {"tmpfs", memoryOnly}, 0x858458f6: {"ramfs", memoryOnly},
	0x6969: {"nfs", overNetwork}, 0xff534d42: {"cifs", overNetwork}, 0xfe534d42: {"smb2", overNetwork}, 0x517b: {"smb", overNetwork},
	0x00c36400: {"ceph", overNetwork}, 0x01021997: {"9p", overNetwork},
	0x65735546: {"fuse", "what is behind it may answer late, or not at all, and then processes wait"},
	0x794c7630: {"overlay", "it is the layer of a container, and goes with it"},
}

const (
	memoryOnly  = "it is in memory: output, exit statuses and services are lost when the machine restarts, and take memory until then"
	overNetwork = "it is on a network: processes wait while its server does not answer"
)

func (m *Machine) filesystem() Finding {
	fs, ok := filesystems[m.Disk.Magic]
	if !ok {
		fs.name = fmt.Sprintf("a filesystem of the kind %#x", m.Disk.Magic)
	}
	f := Finding{Name: "filesystem", State: OK, Detail: m.Dir + " is on " + fs.name}
	if fs.wrong != "" {
		f.State, f.Detail, f.Mend = Limited, f.Detail+": "+fs.wrong,
			"tend serve --state-dir DIR, with a DIR on a disk of this machine (in a container: a volume)"
	}
	return f
}

const (
	noRoom     = 64 << 20 // as little as --spool-budget takes
	littleRoom = 1 << 30
	noInodes   = 64
)

func (m *Machine) disk() Finding {
	f := Finding{Name: "disk_space", State: OK, Detail: fmt.Sprintf("%s of %s are free", bytesText(m.Disk.Free), bytesText(m.Disk.Total)),
		Mend: "tend rm --finished frees what ended processes have written; or tend serve --state-dir DIR on another disk"}
	switch {
	case m.Disk.Total > 0 && m.Disk.Free < noRoom:
		f.State = Broken
	case m.Disk.Inodes > 0 && m.Disk.InFree < noInodes:
		f.State, f.Detail = Broken, fmt.Sprintf("%d of %d inodes are free: no process can be started without files of its own",
			m.Disk.InFree, m.Disk.Inodes)
	case m.Disk.Total > 0 && m.Disk.Free < littleRoom:
		f.State = Limited
	default:
		f.Mend = ""
	}
	return f
}

func bytesText(n uint64) string {
	unit, units := 0, []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v := float64(n)
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", v, units[unit])
}

// written is before each right clock: this was written then.
var written = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *Machine) clock() Finding {
	f := Finding{Name: "clock", State: OK, Detail: m.Clock.UTC().Format(time.RFC3339) + ", synchronised",
		Mend: "timedatectl set-ntp true (or another NTP client)"}
	switch {
	case m.Clock.Before(written):
		f.State, f.Detail = Broken, "it is "+m.Clock.UTC().Format(time.RFC3339)+
			" by the clock: certificates are refused, and times of processes are wrong"
	case m.Unsynced:
		f.State, f.Detail = Limited, m.Clock.UTC().Format(time.RFC3339)+
			", and nobody is known to set the clock: times of several machines do not compare"
	default:
		f.Mend = ""
	}
	return f
}
