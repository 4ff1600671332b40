package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func versionCommand(std terminal.Streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version. --json also prints the protocol, which must equal the executor's, and the path of this program.",
		Example: "  colab-relay version\n  colab-relay version --json",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(std.Out, version)
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program's own path: %v", err)
			}
			return printJSON(std.Out, struct {
				Version    string `json:"version"`
				Protocol   int    `json:"protocol"`
				Go         string `json:"go"`
				OS         string `json:"os"`
				Arch       string `json:"arch"`
				Executable string `json:"executable"`
			}{version, contract.Protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH, program})
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}
