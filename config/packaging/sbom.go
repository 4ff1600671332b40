package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"maps"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials lists the modules that are linked into the programs, and the programs
// with their digests (CycloneDX 1.6, JSON). Go writes the modules into each program. There
// is no serial number and no time, so that equal programs give an equal list.
func billOfMaterials(r *release) ([]artifact, error) {
	modules := map[string]cdx.Component{}
	var programs []cdx.Component
	var dependencies []cdx.Dependency
	for _, name := range []string{"executor", "relay"} {
		built := map[string]map[string][]byte{"executor": r.executor, "relay": r.relay}[name]
		for _, platform := range slices.Sorted(maps.Keys(built)) {
			if platform == universal { // contains the two for darwin
				continue
			}
			file := name + "-" + platform + exe(platform)
			refs, err := addModules(modules, built[platform])
			if err != nil {
				return nil, fmt.Errorf("the modules of %q: %w", file, err)
			}
			programs = append(programs, cdx.Component{
				BOMRef: file, Type: cdx.ComponentTypeApplication, Name: file, Version: r.version,
				Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: artifact{data: built[platform]}.sha256()}},
			})
			dependencies = append(dependencies, cdx.Dependency{Ref: file, Dependencies: &refs})
		}
	}
	components := slices.SortedFunc(maps.Values(modules), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	components = append(programs, components...)
	bom := cdx.BOM{
		JSONSchema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: cdx.BOMFormat, SpecVersion: cdx.SpecVersion1_6, Version: 1,
		Metadata:   &cdx.Metadata{Component: &cdx.Component{BOMRef: command, Type: cdx.ComponentTypeApplication, Name: command, Version: r.version}},
		Components: &components, Dependencies: &dependencies,
	}
	var file bytes.Buffer
	err := cdx.NewBOMEncoder(&file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(&bom)
	return []artifact{{command + "_" + r.number + ".cdx.json", file.Bytes()}}, err
}

// addModules adds the modules of a program, and Go's standard library, and returns their
// references.
func addModules(modules map[string]cdx.Component, program []byte) ([]string, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	refs := []string{}
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + version
		refs = append(refs, url)
		modules[url] = cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		add(module.Path, module.Version)
	}
	slices.Sort(refs)
	return refs, nil
}
