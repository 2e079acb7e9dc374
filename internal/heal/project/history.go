package project

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/heal/guard"
)

const (
	// historyTime is how long the history of the repositories of a project may take to read.
	historyTime = 30 * time.Second
	// maxHistory bounds the secret files in it, in bytes.
	maxHistory = 1 << 20
	// maxRepositories bounds how many repositories are read.
	maxRepositories = 20
)

// history returns all versions of secret files that git still knows, in the repository that the
// project is in, and in those in the project. A value that was in .env a year ago may be one still.
// A repository whose history cannot be read is hidden from commands.
func (l *Local) history(repositories []string, o *Opened) (all []git.Version) {
	ctx, cancel := context.WithTimeout(context.Background(), historyTime)
	defer cancel()
	if !slices.Contains(repositories, l.c.Root) {
		repositories = append([]string{l.c.Root}, repositories...)
	}
	left := int64(maxHistory)
	for i, dir := range repositories {
		err := fmt.Errorf("the project has more than %d", maxRepositories)
		if i < maxRepositories {
			var found []git.Version
			if found, err = secretsOf(ctx, dir, left); err == nil {
				for _, v := range found {
					left -= int64(len(v.Data))
				}
				all = append(all, found...)
			}
		}
		if err == nil {
			continue
		}
		entry := filepath.Join(dir, ".git")
		if dirs := git.Dirs(dir); len(dirs) > 0 {
			entry = dirs[0]
		} else if _, err := os.Lstat(entry); err != nil {
			continue // there is none, or no command sees it
		}
		l.unseen = append(l.unseen, entry)
		o.Notes = append(o.Notes,
			fmt.Sprintf("commands do not see the git repository of %s: its history could not be searched for secrets: %v", dir, err))
	}
	return all
}

func secretsOf(ctx context.Context, dir string, most int64) ([]git.Version, error) {
	r, err := git.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return r.Versions(ctx, guard.IsSecret, most)
}

// hidden reports whether no command sees a repository, by its entry .git.
func (l *Local) hidden(entry string) bool { return slices.Contains(l.unseen, entry) }
