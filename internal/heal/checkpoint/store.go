package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// store keeps content in the private directory, by its sum.
func (p *Point) store(sum string, data []byte) error {
	path := p.storePath(sum)
	if exists(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.File(path, data, 0o600)
}

func (p *Point) storePath(sum string) string { return filepath.Join(p.path(StoreDir), sum[:2], sum) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// content returns that of an entry that is held.
func (p *Point) content(ctx context.Context, e *entry) ([]byte, error) {
	data, err := atomicfile.Read(p.storePath(e.Sum), maxFile)
	if errors.Is(err, fs.ErrNotExist) && p.git != nil && e.Oid != "" {
		data, err = p.git.read(ctx, e.Oid)
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != e.Sum {
		return nil, errors.New("what the checkpoint holds of it is damaged")
	}
	return data, nil
}

// formerly says where the content of an entry is that could not be put back.
func (p *Point) formerly(e *entry) string {
	if e == nil || e.Kind != file || !e.Held {
		return ""
	}
	if path := p.storePath(e.Sum); exists(path) {
		return " (as it was: " + path + ")"
	}
	return " (as it was: git show " + e.Oid + ")"
}

// takeTree scans the project, and keeps the content that git does not have.
func (p *Point) takeTree(ctx context.Context) (found tree, err error) {
	has := map[string]bool{}
	if p.git != nil {
		if p.ignored, err = p.git.ignored(ctx); err != nil {
			return nil, err
		}
		index, err := p.git.index(ctx)
		if err != nil {
			return nil, err
		}
		_, head, err := p.git.head(ctx)
		if err != nil {
			return nil, err
		}
		p.tracked = map[name]bool{}
		for path, e := range index {
			has[e.oid] = true
			if rel, ok := strings.CutPrefix(path, p.git.prefix); ok {
				p.tracked[name(rel)] = true
			}
		}
		for _, b := range head {
			has[b.oid] = true
		}
	}
	var files, size, ignored, ignoredSize int64
	return p.scan(ctx, nil, func(path name, e *entry, data []byte) error {
		if e.Ignored {
			ignored++
			ignoredSize += int64(len(data))
			if len(data) > maxIgnoredFile || ignored > maxIgnored || ignoredSize > maxIgnoredAll {
				p.omit(path, "git ignores it, and it is large or one of very many")
				return nil
			}
		}
		if e.Held = true; p.git != nil && has[e.Oid] {
			return nil
		}
		files++
		size += int64(len(data))
		if p.git == nil && files > maxPlainFiles {
			return &LimitError{"files", maxPlainFiles}
		}
		if size > maxContent {
			return &LimitError{"bytes", maxContent}
		}
		return p.store(e.Sum, data)
	})
}

func gitMode(e *entry) string {
	switch {
	case e.Kind == link:
		return "120000"
	case e.Mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}
