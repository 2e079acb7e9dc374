package e2bapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// snapshotJSON is a snapshot in answers.
type snapshotJSON struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func snapshotOf(s *driver.Snapshot) snapshotJSON {
	names := []string{}
	if s.Name != "" {
		names = append(names, s.Name)
	}
	return snapshotJSON{string(s.ID), names}
}

// snapshot keeps the files of a sandbox. The original keeps its memory, too.
func (f *Face) snapshot(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Name   string          `json:"name"`
		Memory json.RawMessage `json:"memory"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	if err := refuseFields(foreign{"memory", req.Memory, "a snapshot keeps the files; leave it out"}); err != nil {
		return err
	}
	_, info, err := f.find(r)
	if err != nil {
		return err
	}
	sn, ok := f.driver.(driver.Snapshotter)
	if !ok {
		return f.lacks("snapshots")
	}
	spec := driver.SnapshotSpec{Name: req.Name}
	if req.Name != "" { // in a creation the template's name comes first
		spec.Tag = driver.LatestTag // as in the original, a name that there is moves to the new snapshot
		_, err := f.getTemplate(r.Context(), req.Name)
		switch {
		case err == nil || missing(err) && isBase(req.Name):
			return &problem{http.StatusConflict,
				fmt.Sprintf("name %.100q is that of a template; give another one, or none and use the snapshot's ID", req.Name)}
		case !missing(err):
			return err
		}
	}
	s, err := sn.Snapshot(context.WithoutCancel(r.Context()), info.ID, spec)
	if err != nil {
		return gone(r.PathValue("id"), err)
	}
	writeJSON(w, http.StatusCreated, snapshotOf(&s))
	return nil
}

func (f *Face) snapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p, err := pageOf(q)
	if err != nil {
		return err
	}
	sn, ok := f.driver.(driver.Snapshotter)
	if !ok {
		return f.lacks("snapshots")
	}
	all, err := sn.Snapshots(r.Context())
	if err != nil {
		return err
	}
	sandbox, name := q.Get("sandboxID"), q.Get("name")
	all = slices.DeleteFunc(all, func(s driver.Snapshot) bool {
		return s.State != driver.Ready || sandbox != "" && string(s.Sandbox) != sandbox || name != "" && s.Name != name && string(s.ID) != name
	})
	all, next := cut(all, &p, func(s *driver.Snapshot) (time.Time, string) { return s.Created, string(s.ID) })
	list := make([]snapshotJSON, len(all))
	for i := range all {
		list[i] = snapshotOf(&all[i])
	}
	if next != "" {
		w.Header().Set(nextHeader, next)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// missing reports whether an error says that there is no such thing: of a driver of
// several kinds of sandboxes, one may have none at all.
func missing(err error) bool {
	return errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrUnsupported)
}

// getSnapshot finds a snapshot; missing(err): there is none.
func (f *Face) getSnapshot(ctx context.Context, key string) (driver.Snapshot, error) {
	sn, ok := f.driver.(driver.Snapshotter)
	if !ok {
		return driver.Snapshot{}, driver.ErrNotFound
	}
	return sn.GetSnapshot(ctx, key)
}

func (f *Face) deleteSnapshot(ctx context.Context, key string) error {
	sn, ok := f.driver.(driver.Snapshotter)
	if !ok {
		return driver.ErrNotFound
	}
	return sn.DeleteSnapshot(ctx, key)
}
