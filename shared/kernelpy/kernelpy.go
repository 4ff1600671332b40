// Package kernelpy holds the Python that runs in the kernel, as the sources of one
// package, colab_relay. Whoever sends code to a kernel takes the modules it needs
// from here; nothing is installed on the VM. It must not know who runs them.
package kernelpy

import (
	"embed"
	"fmt"
)

//go:embed colab_relay/*.py
var files embed.FS

// root is the package that all modules are part of.
const root = "colab_relay"

// Source is the text of a module, by its name within colab_relay. To ask for one that
// is not there is a fault of the program.
func Source(module string) string {
	text, err := files.ReadFile(root + "/" + module + ".py")
	if err != nil {
		panic(fmt.Sprintf("kernelpy: no module %q", module))
	}
	return string(text)
}

// Sources are the package and these modules of it, as pairs of the name under which
// others import it and its text. The caller puts each module before those that import it.
func Sources(modules ...string) [][2]string {
	all := [][2]string{{root, Source("__init__")}}
	for _, name := range modules {
		all = append(all, [2]string{root + "." + name, Source(name)})
	}
	return all
}
