package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/registry"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/process"
)

// UIDBase is the outer id of root inside, unless Config has another one, in the sandboxes that have no ids of
// their own. On a usual machine no account has one of the container.IDs ids from there on.
const UIDBase = 1_000_000_000

const trashName = ".trash"

// Root is the inside of a sandbox for a start: internal/core/client.Boxed.
type Root interface {
	User(name string) (files.User, error)
	Look(ctx context.Context, u files.User, look func(stat func(path string) (fs.FileInfo, error))) error
	Container() container.ID
}

// Config of a Driver. Dir, Manager, Inside and Engine are needed.
type Config struct {
	// Dir has the sandboxes; it is created if it is missing. It must be on a filesystem
	// that supports the upper layer of an overlay.
	Dir string
	// State is the daemon's top directory, which no sandbox sees. Empty: Dir.
	State string
	// Manager of the machine's processes. Inside returns a Manager whose starts run inside
	// a root, and Engine creates containers. All three belong to one keeper.
	Manager process.Manager
	Inside  func(Root) process.Manager
	Engine  container.Engine
	// UIDBase of the containers without ids of their own, if the daemon is root. 0: the constant
	// UIDBase. Containers of another daemon have only one id, the daemon's.
	UIDBase uint32
	// Hide are more paths of this machine that no sandbox sees.
	Hide []string
	// Show are more directories of this machine that sandboxes see (container.CheckShown).
	Show []string
	// SharedProc: where the kernel gives sandboxes no /proc of their own, they see the daemon's. Else
	// there are none then.
	SharedProc bool
	// Network decides what sandboxes reach. nil: what this machine reaches, without rules.
	Network *network.Host
	// Door serves a listening socket inside of a sandbox that has an E2BTemplate, at the
	// port of envd on localhost, until the socket is closed; it does not wait. nil: nothing
	// listens there.
	Door func(driver.ID, net.Listener)
	// Spare: Run keeps a sandbox ready for the next creation, from the first creation on, and as many as were asked for at once.
	Spare bool
	// Warm, if it is not nil, starts in a spare what the start command WarmStart would, which is then not run any more. What it
	// starts knows nothing yet of who creates the sandbox: neither its variables nor its name.
	Warm      func(ctx context.Context, id driver.ID, in driver.Access) error
	WarmStart string
	// WarmPort is served by Door as well, in sandboxes that began with WarmStart; 0: none is.
	WarmPort uint16
	// Disk size of a sandbox that requests none, in bytes. 0: it writes to the machine's
	// disk without a limit.
	Disk int64
	// VolumeDisk is the disk size of each volume that is made from now on, in bytes. 0: it is a
	// directory of the machine's disk, without a limit.
	VolumeDisk int64
	// Registry says how images are fetched.
	Registry registry.Config
	// ShareImages are the images that are everybody's beside public ones ([oci.Config].Share).
	ShareImages []string
	// ImagesMost is how many bytes images may have; 0: no limit.
	ImagesMost int64
	// Tell is told what becomes of the sandboxes.
	Tell driver.Tell
	Log  *slog.Logger // nil: nothing is logged
}

// Driver implements driver.Driver.
type Driver struct {
	cfg        Config
	log        *slog.Logger
	clock      *sandboxrecord.Clock // of deadlines
	containers sandboxrecord.Registry[*sandbox]
	out        *network.Host
	over       atomic.Bool // no more ways out are opened

	layers    *layer.Store
	snapshots snapshots
	templates templates
	images    *oci.Store
	pulls     pulls
	caches    caches
	volumes   volumes
	// thrown has one when the trash is not empty.
	thrown chan struct{}

	spares, warm spares
	ids          *ids
	disks        sync.Mutex // held while room for a disk is looked for and taken

	defaults driver.Size            // of sandboxes that ask for nothing
	sudoSum  func() (string, error) // sumOfSudo, once

	expiring  sync.WaitGroup // of sandboxes at their time
	ends      chan struct{}  // a place for each of them
	startWait time.Duration

	joining sync.Mutex
	joined  bool          // the records met the keeper's containers; guarded by joining
	can     container.Can // as the keeper said last; guarded by joining
	asked   time.Time     // when it said so; guarded by joining
	// halves are directories without a record that this server found, whose processes are to be forgotten; guarded by joining.
	halves []driver.ID
	// strays: a container may be left of a creation whose answer was lost.
	strays atomic.Bool
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Runner = (*Driver)(nil)
	_ driver.Pauser = (*Driver)(nil)
	_ driver.Meter  = (*Driver)(nil)

	_ driver.Snapshotter = (*Driver)(nil)
	_ driver.Forker      = (*Driver)(nil)
	_ driver.Differ      = (*Driver)(nil)
	_ driver.Templater   = (*Driver)(nil)
	_ driver.Tagger      = (*Driver)(nil)
)

// Open reads the existing sandboxes. It does not need the keeper: the first call that does
// connects the sandboxes with the existing containers.
func Open(cfg Config) (*Driver, error) {
	if cfg.Manager == nil || cfg.Inside == nil || cfg.Engine == nil || cfg.Dir == "" {
		return nil, &driver.InvalidError{Field: "config", Reason: "needs a directory, managers and an engine"}
	}
	if err := supported(); err != nil {
		return nil, err
	}
	cfg.State, cfg.UIDBase = cmp.Or(cfg.State, cfg.Dir), cmp.Or(cfg.UIDBase, UIDBase)
	if os.Geteuid() != 0 {
		cfg.UIDBase = 0
	}
	d := &Driver{cfg: cfg, log: cfg.Log, clock: sandboxrecord.NewClock(), thrown: make(chan struct{}, 1),
		spares: newSpares(sparePatience, spareShapes, mostSpares()), warm: newSpares(warmPatience, 1, 1), ends: make(chan struct{}, mostExpiring),
		startWait: startWait, sudoSum: sync.OnceValues(sumOfSudo), defaults: defaultSize(pidsOfMachine(), memoryOfMachine())}
	d.defaults.Disk, d.ids = cfg.Disk, newIDs(cfg.State, cfg.UIDBase)
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.out = cfg.Network; d.out == nil {
		d.out = network.NewHost(network.Config{Log: cfg.Log})
	}
	if err := errors.Join(spread(cfg.Dir), os.MkdirAll(d.trash(), 0o700)); err != nil {
		return nil, fmt.Errorf("directory of the sandboxes: %w", err)
	}
	if err := d.openLayers(); err != nil {
		return nil, err
	}
	if err := errors.Join(d.openImages(), d.openTemplates(), d.openVolumes(), d.openBuilds()); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the sandboxes: %w", err)
	}
	for _, e := range entries {
		if !driver.LikeID(e.Name()) {
			continue
		}
		var rec record
		err := sandboxrecord.Read(filepath.Join(cfg.Dir, e.Name()), &rec)
		if errors.Is(err, fs.ErrNotExist) {
			d.halves = append(d.halves, driver.ID(e.Name())) // a creation that did not come to its end
			err = d.discard(filepath.Join(cfg.Dir, e.Name()))
		} else if err == nil && string(rec.ID) != e.Name() {
			err = fmt.Errorf("it is that of %.40q", rec.ID)
		} else if err == nil {
			if rec.Build != "" {
				rec.Destroying = true // the build is over
			}
			s := d.newSandbox(rec)
			if err = s.holdLayers(); err == nil {
				err = d.containers.Restore(s, &rec.Record)
			}
			d.ids.keep(rec.UIDBase)
		}
		if err != nil {
			d.log.Warn("sandbox is not usable, leaving it", slog.String("dir", e.Name()), slog.Any("err", err))
		}
	}
	return d, nil
}

// askAgain is how long a keeper that makes no containers is not asked again, but by a
// creation.
const askAgain = time.Minute

// join asks the keeper what there is, once: of sandboxes and containers, one without the
// other ends.
func (d *Driver) join(ctx context.Context) error {
	d.joining.Lock()
	defer d.joining.Unlock()
	if d.joined || time.Since(d.asked) < askAgain {
		return nil
	}
	can, err := d.cfg.Engine.Can(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(can.Way), container.WaySharedProc) && !d.cfg.SharedProc {
		can = container.Can{Missing: []container.Missing{{Reason: container.NoProc}}}
	}
	if d.can = can; can.Mode == 0 {
		d.asked = time.Now()
		return nil
	}
	d.needDiskPrograms()
	d.warnOfLimits()
	there, err := d.cfg.Engine.List(ctx)
	if err != nil {
		return err
	}
	live := map[driver.ID]container.Info{}
	for _, in := range there {
		live[driver.ID(in.ID)] = in
	}
	for _, s := range d.containers.All() {
		in, found := live[s.id]
		if kept := s.meet(in, found); kept {
			delete(live, s.id)
		}
	}
	for id := range live {
		d.log.Info("container without a sandbox is ended", slog.String("id", string(id)))
		if err := d.cfg.Engine.End(ctx, container.ID(id)); err != nil {
			return err
		}
	}
	for _, id := range d.halves { // of a warm spare, what has started is known to the keeper
		if err := sandboxrecord.End(ctx, d.cfg.Manager, id, true); err != nil {
			return err
		}
	}
	d.halves, d.joined = nil, true
	return nil
}

// newID is that of a sandbox, and of its container.
func (d *Driver) newID() driver.ID { return driver.ID(d.cfg.Engine.NewID()) }

// capable returns what the keeper can do.
func (d *Driver) capable(ctx context.Context) (container.Can, error) {
	if err := d.join(ctx); err != nil {
		return container.Can{}, err
	}
	d.joining.Lock()
	defer d.joining.Unlock()
	return d.can, nil
}

// uidBase is the outer id of root inside, of new sandboxes without ids of their own; 0: the daemon's own.
func (d *Driver) uidBase() uint32 {
	d.joining.Lock()
	defer d.joining.Unlock()
	if d.can.Mode == container.ModeRootless {
		return 0
	}
	return d.cfg.UIDBase
}

// way in which containers are made, in a line.
func (d *Driver) way() string {
	d.joining.Lock()
	defer d.joining.Unlock()
	return d.can.Way
}

// Unable says why no sandbox can be created here; nil: it can.
func (d *Driver) Unable(ctx context.Context) error {
	d.joining.Lock()
	d.asked = time.Time{} // another keeper may have taken the place of one that cannot
	d.joining.Unlock()
	can, err := d.capable(ctx)
	if err != nil || can.Mode != 0 {
		return err
	}
	reason := "this machine has not what it takes"
	for _, m := range can.Missing {
		if m.Layer == "" {
			reason = m.Reason
		}
	}
	return &driver.UnsupportedError{Field: "isolation", Reason: reason}
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	can, err := d.capable(ctx)
	if err != nil {
		can = container.Can{}
	}
	plain := slices.Contains(strings.Fields(can.Way), container.WayPlain)
	out := driver.Capabilities{Name: "local", Layers: can.Layers, Way: can.Way,
		Snapshots: can.Mode == container.ModeRootless || can.Mode == container.ModeUser && !plain}
	for _, m := range can.Missing {
		out.Missing = append(out.Missing, cmp.Or(m.Layer, "all")+": "+m.Reason)
	}
	if !slices.Contains(can.Layers, container.LayerNetwork) {
		return out
	}
	if err := d.out.Unable(); err != nil {
		out.Missing = append(out.Missing, layerOutgoing+": "+err.Error())
	} else {
		out.Layers = append(slices.Clone(can.Layers), layerOutgoing)
	}
	return out
}

func (d *Driver) trash() string { return filepath.Join(d.cfg.Dir, trashName) }

// Get implements driver.Driver.
func (d *Driver) Get(ctx context.Context, key string) (driver.Sandbox, error) {
	return d.get(ctx, key)
}

func (d *Driver) get(ctx context.Context, key string) (*sandbox, error) {
	s, ok := d.containers.Get(key)
	if !ok || s.isGone() {
		return nil, fmt.Errorf("%.200q: %w", key, driver.ErrNotFound)
	}
	return s, d.join(ctx)
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Info, error) {
	if err := d.join(ctx); err != nil {
		return nil, err
	}
	var infos []driver.Info
	for _, s := range d.containers.All() {
		if info, err := s.Info(ctx); err == nil && !s.ofBuild() {
			infos = append(infos, info)
		}
	}
	driver.SortInfos(infos)
	return infos, nil
}

// isOfBox reports whether an error says that a container cannot be used now.
func isOfContainer(err error) bool {
	return errors.Is(err, container.ErrFrozen) || errors.Is(err, container.ErrEnded) || errors.Is(err, container.ErrNotFound)
}

// fault makes of an error of the keeper's one of package driver.
func fault(err error) error {
	invalid, isInvalid := errors.AsType[*process.InvalidError](err)
	switch {
	case err == nil:
		return nil
	case isInvalid:
		field := invalid.Field
		if of, ok := strings.CutPrefix(field, "binds"); ok {
			field = "shares" + of
		}
		return &driver.InvalidError{Field: field, Reason: invalid.Reason}
	case errors.Is(err, container.ErrFrozen):
		return driver.ErrPaused
	case errors.Is(err, container.ErrEnded), errors.Is(err, container.ErrNotFound):
		return driver.ErrStopped
	case errors.Is(err, process.ErrUnsupported):
		return &driver.UnsupportedError{Field: "isolation", Reason: err.Error()}
	}
	return err
}
