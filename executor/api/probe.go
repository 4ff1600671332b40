package api

import (
	"context"
	"net/http"

	"colabrelay/executor/kernel"
	"colabrelay/executor/variables"
)

// probe describes the machine, and the variables of the kernel. loaded_variables is null
// while code runs or there is no kernel.
func (a *API) probe(r *http.Request) (any, error) {
	out, err := a.Prober.Probe(r.Context())
	if err != nil {
		return nil, err
	}
	if k := a.Kernel.Status(); k.Python != "" {
		out.Python.Version, out.Python.IPyKernel = k.Python, k.IPyKernel
	}
	names := []string{}
	err = a.onIdleKernel(r.Context(), func(ctx context.Context, k *kernel.Kernel) error {
		found, err := variables.Variables(ctx, k.Client)
		for _, v := range found.Variables {
			names = append(names, v.Name)
		}
		out.LoadedVariablesCount = &found.Count
		return err
	})
	if err != nil {
		out.LoadedVariables, out.LoadedVariablesCount = nil, nil
		return out, nil
	}
	out.LoadedVariables = names
	return out, nil
}
