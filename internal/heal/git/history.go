package git

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Version is what a file was at some time.
type Version struct {
	Path string // from the top of the work tree
	Data []byte
}

// maxVersions bounds how many versions of files are read.
const maxVersions = 5_000

// Versions returns all versions, in each commit that the repository still has, whether a name leads
// there or not (as to a dropped stash), and in the index, of the files whose paths want names. If they have more than so many
// bytes together, that is an error.
func (r *Repository) Versions(ctx context.Context, want func(path string) bool, most int64) ([]Version, error) {
	paths := map[string]string{}
	var ids []string
	add := func(mode, id, path string) {
		if strings.HasPrefix(mode, "1") && paths[id] == "" && want(path) { // a file or a link
			paths[id], ids = path, append(ids, id)
		}
	}
	err := r.words(ctx, 0, func(entry string) {
		head, path, _ := strings.Cut(entry, "\t")
		if f := strings.Fields(head); len(f) == 3 {
			add(f[0], f[1], path)
		}
	}, nil, "ls-files", "--stage", "-z", "--full-name")
	if err != nil {
		return nil, err
	}
	var commits bytes.Buffer
	if err := r.words(ctx, '\n', func(line string) {
		if id, ok := strings.CutPrefix(line, "commit "); ok {
			commits.WriteString(id + "\n")
		}
	}, nil, "cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectname)"); err != nil {
		return nil, err
	}
	// Without names of files for git: to match them takes it ten times as long as all the rest.
	// Without commits it would ask for HEAD.
	var f []string
	if commits.Len() > 0 {
		err = r.words(ctx, 0, func(word string) {
			if strings.HasPrefix(word, ":") && len(f) == 0 { // :MODE MODE ID ID STATUS
				f = strings.Fields(word)
				return
			}
			if len(f) == 5 {
				add(f[0][1:], f[2], word)
				add(f[1], f[3], word)
			}
			f = nil
		}, &commits, "log", "--stdin", "--no-walk=unsorted", "--root", "--diff-merges=separate",
			"--raw", "--no-abbrev", "--no-renames", "--no-relative", "-z", "--format=")
	}
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if len(ids) > maxVersions {
		return nil, fmt.Errorf("its secret files have more than %d versions", maxVersions)
	}
	// What a hostile repository has may be of any size.
	asked := []byte(strings.Join(ids, "\n") + "\n")
	sizes, err := r.Run(ctx, nil, asked, "cat-file", "--batch-check")
	if err != nil {
		return nil, err
	}
	var sum int64
	for line := range strings.Lines(string(sizes)) {
		_, n, err := object(line)
		if err != nil {
			return nil, err
		}
		sum += max(n, 0)
	}
	if sum > most {
		return nil, fmt.Errorf("the versions of its secret files have %d bytes; at most %d are read", sum, most)
	}
	out, err := r.Run(ctx, nil, asked, "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	return versions(out, paths)
}

// words calls back for each part of what git writes, up to its end.
func (r *Repository) words(ctx context.Context, end byte, each func(string), stdin io.Reader, args ...string) error {
	cmd := r.Command(ctx, nil, args...)
	cmd.Stdin = stdin
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for b := bufio.NewReader(out); ; {
		word, err := b.ReadString(end)
		if err != nil { // its end, or that of git
			break
		}
		each(word[:len(word)-1])
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	return nil
}

// versions takes the answer of cat-file apart.
func versions(out []byte, paths map[string]string) (all []Version, err error) {
	for len(out) > 0 {
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		id, n, err := object(string(head))
		switch {
		case err != nil:
			return nil, err
		case n < 0:
			out = rest
			continue
		case n >= int64(len(rest)):
			return nil, fmt.Errorf("git cat-file ends within %s", id)
		}
		all = append(all, Version{paths[id], rest[:n]})
		out = rest[n+1:]
	}
	return all, nil
}

// object reads what cat-file says of an object. One that is not there, as in a partial clone,
// has a size of -1: nobody can show it.
func object(head string) (id string, size int64, err error) {
	f := strings.Fields(head)
	if len(f) == 2 && f[1] == "missing" {
		return f[0], -1, nil
	}
	if len(f) == 3 && f[1] == "blob" {
		if size, err = strconv.ParseInt(f[2], 10, 64); err == nil && size >= 0 {
			return f[0], size, nil
		}
	}
	return "", 0, fmt.Errorf("git cat-file says %.80q", head)
}
