package box

import "slices"

// hidden is what no box sees of this machine: secrets, other users' files, and
// what changes how the machine boots. A directory is empty inside, a file is not there, but
// for /etc/shadow and /etc/gshadow: a box has its own, see [Shadow].
// Files in the last part of a path may be named by a pattern, as in path.Match.
var hidden = []string{
	"/boot", "/efi",
	"/etc/NetworkManager/system-connections", "/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/cloudflared",
	"/etc/docker", "/etc/exim4", "/etc/gshadow", "/etc/gshadow-", "/etc/ipsec.d", "/etc/ipsec.secrets",
	"/etc/krb5.keytab", "/etc/kubernetes", "/etc/letsencrypt", "/etc/mysql", "/etc/netplan", "/etc/openvpn",
	"/etc/postfix", "/etc/postgresql", "/etc/ppp", "/etc/rancher", "/etc/samba", "/etc/security/opasswd",
	"/etc/shadow", "/etc/shadow-", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private", "/etc/sssd", "/etc/sudoers.d",
	"/etc/wireguard", "/etc/wpa_supplicant",
	"/home", "/lost+found", "/media", "/mnt", "/root", "/run", "/srv", "/swapfile", "/tmp",
	"/var/backups", "/var/cache/apt/archives", "/var/cache/debconf/passwords.dat*", "/var/crash", "/var/lib/NetworkManager",
	"/var/lib/cloud", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd",
	"/var/lib/jenkins", "/var/lib/kubelet", "/var/lib/mongodb", "/var/lib/mysql", "/var/lib/postgresql",
	"/var/lib/private", "/var/lib/rancher", "/var/lib/redis", "/var/lib/samba", "/var/lib/snapd", "/var/lib/sss",
	"/var/lib/systemd", "/var/lib/tailscale", "/var/lib/tend", "/var/log", "/var/mail", "/var/spool", "/var/tmp",
}

// Hidden lists the paths of this machine that no box sees, whatever its Spec says. Also
// hidden are the keeper's own state directory, and the files in /etc and directly in
// /var/lib that are not readable by everybody when the first box is created, except
// /etc/sudoers.
func Hidden() []string { return slices.Clone(hidden) }
