package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// readSecret reads a file that no other user should read, as the keys of ssh(1).
// shared says that others may; what is no regular file, such as a pipe of the
// shell, has no mode to go by. Of another user's file the secret is that user's, who
// may just have put the file there.
func readSecret(path string) (data []byte, shared, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if fi.Mode().IsRegular() && !atomicfile.Theirs(fi, os.Geteuid()) {
		return nil, nil,
			fmt.Errorf("%s belongs to another user, who knows the secret and may change it; "+
				"give it to uid %d, after a look at what is in it: chown %[2]d %[1]s", path, os.Geteuid())
	}
	if mode := fi.Mode().Perm(); secretModes && fi.Mode().IsRegular() && mode&0o077 != 0 {
		shared = fmt.Errorf("the mode of %s is %04o, so others may read or change the secret; run: chmod 600 %s", path, mode, path)
	}
	data, err = io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = fmt.Errorf("%s is larger than %d bytes; a secret is short", path, maxSecret)
	}
	return data, shared, err
}

// readExitSecret reads the secret that signs messages of exits.
func readExitSecret(path string) ([]byte, error) {
	data, shared, err := readSecret(path)
	secret := bytes.TrimSpace(data)
	if err = errors.Join(err, shared); err == nil && len(secret) == 0 {
		err = fmt.Errorf("%s is empty; put a secret into it, such as the output of: head -c 32 /dev/urandom | base64", path)
	}
	if err != nil {
		return nil, fmt.Errorf("--on-exit-secret: %w", err)
	}
	return secret, nil
}

// readToken reads a token file: one line, spaces around it ignored. shared says
// that others may read it, which tend serve refuses; a server that starts again
// continues with it, or a change of the mode would end the service.
func readToken(path string) (token string, shared, err error) {
	data, shared, err := readSecret(path)
	if err != nil {
		return "", nil, fmt.Errorf("read the token: %w", err)
	}
	token = strings.TrimSpace(string(data))
	switch {
	case token == "":
		return "", shared, fmt.Errorf("the token file %s is empty; put a secret into it, such as the output of: head -c 32 /dev/urandom | base64",
			path)
	case strings.ContainsAny(token, " \t\r\n"):
		return "", shared, errors.New("the token file " + path + " has more than one word; a token is one word")
	}
	return token, shared, nil
}
