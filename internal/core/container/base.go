package container

import (
	"fmt"
	"path"
	"strings"
)

// Programs are the directories of this machine with programs and libraries. One that is a link
// on the machine is that link inside.
var Programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// Packages are the directories with the machine's databases of packages: programs inside install more.
var Packages = []string{"/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/lib/dnf", "/var/lib/pacman/local"}

// Settings are the files and directories of /etc that containers have copies of, as far as everybody
// may read them. The last part may be a pattern, as in path.Match. All else in /etc is not there, or
// the container's own: accounts, names of hosts, and the like.
var Settings = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf",
	"pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust", "pki/rpm-gpg", "crypto-policies",
	"apt", "dpkg", "debconf.conf", "yum.repos.d", "dnf", "apk", "pacman.conf", "pacman.d",
	"pam.d", "pam.conf", "security", "login.defs", "shells", "skel", "profile", "profile.d", "bash.bashrc", "bashrc", "inputrc",
	"default/locale", "default/useradd", "adduser.conf", "deluser.conf", "locale.*", "localtime", "timezone",
	"os-release", "*-release", "*_version",
	"host.conf", "gai.conf", "protocols", "services", "rpc", "networks", "mime.types", "magic*", "terminfo", "fonts", "java-*", "maven",
	"python*", "perl", "php", "R", "groff", "vim", "X11/rgb.txt", "resolv.conf",
}

// Withheld are those of [Settings], and below them, with secrets.
var Withheld = []string{"apt/auth.conf", "apt/auth.conf.d", "security/opasswd", "pacman.d/gnupg"}

// MaxShow bounds how many more directories of the machine a container sees.
const MaxShow = 32

// CheckShown says why a directory of the machine may not be shown inside as it is, by its name
// alone; "": it may.
func CheckShown(p string) string {
	switch {
	case len(p) > MaxPath:
		return fmt.Sprintf("has %d bytes; the limit is %d", len(p), MaxPath)
	case !strings.HasPrefix(p, "/"):
		return fmt.Sprintf("is %.200q; give an absolute path", p)
	case strings.ContainsAny(p, "\x00,:\\"):
		return fmt.Sprintf("is %.200q; a comma, a colon and a backslash cannot stand in it", p)
	case path.Clean(p) != p:
		return fmt.Sprintf("is %.200q; write it as %.200q", p, path.Clean(p))
	case p == "/":
		return "is the root directory, which is shown to no sandbox; name directories in it"
	case p == "/root" || path.Dir(p) == "/home" || p == "/home":
		return fmt.Sprintf("is %.200q, a home; name the directory in it that programs need", p)
	}
	for _, own := range []string{"/proc", "/sys", "/dev", "/run", "/etc", "/tmp", "/var/tmp", "/var/run"} {
		if p == own || strings.HasPrefix(p, own+"/") {
			return fmt.Sprintf("is %.200q; sandboxes have a %s of their own", p, own)
		}
	}
	for _, shown := range append(Programs[:len(Programs):len(Programs)], Packages...) {
		if p == shown || strings.HasPrefix(shown, p+"/") {
			return fmt.Sprintf("is %.200q, and sandboxes see %s of it as it is; name directories in it", p, shown)
		}
	}
	return ""
}
