package box

import "slices"

// hidden is what no box sees of this machine: secrets, other users' files, and
// what changes how the machine boots. A directory is empty inside, a file is not there.
// Files in the last part of a path may be named by a pattern, as in path.Match.
var hidden = []string{
	"/boot", "/efi", "/home", "/lost+found", "/media", "/mnt", "/root", "/run", "/srv", "/swapfile", "/tmp",
	"/etc/docker", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab", "/etc/kubernetes", "/etc/letsencrypt",
	"/etc/NetworkManager/system-connections", "/etc/security/opasswd", "/etc/shadow", "/etc/shadow-",
	"/etc/ssh/ssh_host_*_key", "/etc/ssl/private", "/etc/sudoers.d", "/etc/wireguard",
	"/var/backups", "/var/cache/apt/archives", "/var/crash",
	"/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/kubelet", "/var/lib/mysql",
	"/var/lib/postgresql", "/var/lib/private", "/var/lib/systemd", "/var/lib/tend",
	"/var/log", "/var/mail", "/var/spool", "/var/tmp",
}

// Hidden lists what of this machine no box sees, whatever its Spec says. Hidden, too, are
// the keeper's own state directory, and what in /etc and directly in /var/lib is not
// readable for everybody, but for /etc/sudoers, when the first box is made.
func Hidden() []string { return slices.Clone(hidden) }
