package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom lists what is in the program, as CycloneDX: the modules that the linker has
// written into it, Go itself, and the packages from npm that the page is built from.
func sbom(b *build) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(b.tend))
	if err != nil {
		return nil, err
	}
	main := cdx.Component{BOMRef: "tend", Type: cdx.ComponentTypeApplication, Name: "tend", Version: b.version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + b.version, Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(b.tend))}}}
	parts := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		parts = append(parts, module(m))
	}
	npm, err := pagePackages(b.root)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(npm)) {
		parts = append(parts, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: name, Version: npm[name],
			PackageURL: "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + npm[name]})
	}
	var refs []string
	for i := range parts {
		parts[i].BOMRef = parts[i].PackageURL
		refs = append(refs, parts[i].BOMRef)
	}
	bom := cdx.NewBOM()
	// One program has one list, and it names itself by what it is about.
	id := sha256.Sum256(append([]byte(b.platform), b.tend...))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // RFC 9562, version 8
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
	bom.Metadata = &cdx.Metadata{Timestamp: b.when.Format(time.RFC3339), Component: &main,
		Properties: &[]cdx.Property{{Name: "platform", Value: b.platform}}}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: "tend", Dependencies: &refs}}
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// module is one that was linked in. Its hash is the one of go.sum.
func module(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: "pkg:golang/" + m.Path + "@" + m.Version}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

// pagePackages are the packages from npm that are built into the page, by their versions.
func pagePackages(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "sdk", "web", "package.json"))
	if err != nil {
		return nil, err
	}
	var file struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	delete(file.DevDependencies, "playwright-core") // drives its tests
	return file.DevDependencies, nil
}
