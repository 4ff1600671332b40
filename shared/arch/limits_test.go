package arch

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// limits names, for each limit on what comes from outside, the test that goes to the bound and
// one past it.
var limits = map[string]string{
	"shared/contract.ClockSkew":         "shared/auth.TestClock",
	"shared/contract.CodePreviewRunes":  "executor/journal.TestThePreviewOfCodeIsBounded",
	"shared/contract.InlineMIMEBytes":   "executor/execution.TestThePartsOfADisplayAtTheirBounds",
	"shared/contract.MaxBatchFile":      "executor/uploads.TestTheBoundsOfABatchAreChecked",
	"shared/contract.MaxBatchFiles":     "executor/uploads.TestTheBoundsOfABatchAreChecked",
	"shared/contract.MaxBatchRead":      "executor/files.TestTheBoundsOfReadingManyFilesAreChecked",
	"shared/contract.MaxBehindPrompt":   "executor/execution.TestAPromptBehindWhichOthersWaitIsBounded",
	"executor/api.maxValues":            "executor/api.TestTheValuesOfABodyAreBounded",
	"shared/contract.MaxBlobPart":       "executor/api.TestQueryNumbersAtTheirBounds",
	"shared/contract.MaxBlobs":          "executor/journal.TestBlobsAreBoundedInNumberAndBytes",
	"shared/contract.MaxBodyBytes":      "executor/api.TestTheSizeOfABodyIsChecked",
	"shared/contract.MaxErrorEvent":     "executor/execution.TestAnErrorIsCutPastItsBound",
	"shared/contract.MaxEventBytes":     "executor/journal.TestAnEventAtItsBoundIsKept",
	"shared/contract.MaxFilePart":       "executor/api.TestTheSizeOfAPartIsChecked",
	"shared/contract.MaxHeaderBytes":    "executor/api.TestHeadersAreLimited",
	"shared/contract.MaxInputWait":      "executor/execution.TestAWaitForInputEndsAtItsBound",
	"shared/contract.MaxInstancePart":   "shared/contract.TestInstanceIsReadOnlyAsItIsWritten",
	"shared/contract.MaxJobAttempts":    "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxJobCode":        "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxJobEntries":     "executor/job.TestAnAnswerHasABoundedNumberOfEntries",
	"shared/contract.MaxJobIDLen":       "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxKernelIDLen":    "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxJobPatches":     "executor/job.TestPatchesOfAJobAreBounded",
	"shared/contract.MaxJobRounds":      "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxJobSteps":       "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxListJobs":       "executor/api.TestJobsOverHTTP",
	"shared/contract.MaxSourceName":     "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxStepIDLen":      "executor/job.TestTheContentOfAJobIsBounded",
	"shared/contract.MaxListExecutions": "executor/api.TestQueryNumbersAtTheirBounds",
	"shared/contract.MaxListFiles":      "executor/files.TestListIsCutAtItsBoundAndCountsAll",
	"shared/contract.MaxManifestFiles":  "executor/files.TestTheBoundOfAManifestIsChecked",
	"shared/contract.MaxReadBytes":      "executor/api.TestQueryNumbersAtTheirBounds",
	"shared/contract.MaxRequestIDLen":   "executor/api.TestSubmitDefaultsAndBounds",
	"shared/contract.MaxStreamEvent":    "executor/execution.TestAStreamEventIsBounded",
	"shared/contract.MaxTimeout":        "executor/api.TestSubmitDefaultsAndBounds",
	"shared/contract.MaxUploadRanges":   "executor/uploads.TestTheJournalOfManyPiecesStaysBounded",
	"shared/contract.MaxUploadVersion":  "executor/api.TestTheBoundsOfTransferRequestsAreChecked",
	"shared/contract.MaxUploads":        "executor/uploads.TestTheLeastRecentlyUsedUploadIsDropped",
	"shared/contract.MaxWait":           "executor/api.TestSubmitDefaultsAndBounds",

	"shared/auth.maxInputBytes":    "shared/auth.TestTheHeadersOfASignatureAreBounded",
	"shared/auth.maxInstanceBytes": "shared/auth.TestTheHeadersOfASignatureAreBounded",
	"shared/auth.maxNonceChars":    "shared/auth.TestTheLengthOfANonceIsBounded",
	"shared/auth.maxNonces":        "shared/auth.TestTheWindowIsBoundedAndRemovesByAgeOnly",
	"shared/auth.maxPairingBytes":  "shared/auth.TestAPairingStringIsRefusedPastItsBound",
	"shared/auth.maxSecretBytes":   "shared/auth.TestNewSecretBounds",
	"shared/auth.maxSecretFile":    "shared/auth.TestASecretIsReadFromARegularFileOnly",
	"shared/auth.minNonceChars":    "shared/auth.TestTheLengthOfANonceIsBounded",
	"shared/auth.MinSecretBytes":   "shared/auth.TestNewSecretBounds",
	"shared/line.MaxSealedBody":    "executor/api.TestTheSizeOfABodyIsChecked",
	"shared/line.maxAtOnce":        "shared/line.TestAnAnnouncedLengthTakesLittleMemory",
	"shared/line.maxQuery":         "shared/e2e/attack.TestHostileTextsOfAKeyHolder",
	"shared/seal.maxRatio":         "shared/seal.TestALengthThatNoCompressionReachesTakesNoMemory",

	"executor/api.maxETagLen":           "executor/api.TestTheBoundsOfTransferRequestsAreChecked",
	"executor/api.maxFileError":         "executor/api.TestErrorsAboutManyFilesAreShort",
	"executor/api.maxKeyBurst":          "executor/api.TestSignedRequestsAreLimitedPerKey",
	"executor/api.maxKeyWait":           "executor/api.TestAWaitForATurnIsBounded",
	"executor/api.maxKeyWaiting":        "executor/api.TestAWaitForATurnIsBounded",
	"executor/api.maxNameLen":           "executor/api.TestEachEndpointWithARealKernel",
	"executor/api.maxRefusedPerMinute":  "executor/api.TestTheThreeLimitsDoNotTouchEachOther",
	"executor/api.maxServed":            "executor/api.TestOnlyTheLastTurnsOfTheRateAreRemembered",
	"executor/api.maxUnsignedPerMinute": "executor/api.TestTheThreeLimitsDoNotTouchEachOther",
	"executor/api.maxUnverified":        "executor/api.TestConnectionsAreBounded",
	"executor/api.maxVerified":          "executor/api.TestConnectionsAreBounded",
	"executor/api.maxWaiting":           "executor/api.TestWaitingRequestsAreLimitedAndTheRestIsRetryable",

	"executor/execution.maxCut":        "executor/execution.TestTheListOfWhatWasCutIsBounded",
	"executor/execution.maxDisplayID":  "executor/execution.TestThePartsOfADisplayAtTheirBounds",
	"executor/execution.maxFrames":     "executor/execution.TestTracebackKeepsItsEndsAtTheBound",
	"executor/execution.maxGrace":      "executor/execution.TestTheGracePeriodIsBounded",
	"executor/execution.maxGuests":     "executor/execution.TestCallsThatWaitAreBounded",
	"executor/execution.maxInline":     "executor/execution.TestThePartsOfADisplayAtTheirBounds",
	"executor/execution.maxMetadata":   "executor/execution.TestThePartsOfADisplayAtTheirBounds",
	"executor/execution.maxQueuedCode": "executor/execution.TestTheCodeOfWaitingRunsIsBounded",
	"executor/execution.maxStreamName": "executor/execution.TestTheNameOfAStreamIsBounded",
	"executor/execution.maxTurnWait":   "executor/execution.TestTheWaitForAnIdleKernelIsBounded",
	"executor/execution.maxTurns":      "executor/execution.TestOnlyTheLastTurnsAreRemembered",
	"executor/execution.maxTypeName":   "executor/execution.TestThePartsOfADisplayAtTheirBounds",
	"executor/execution.maxTypes":      "executor/execution.TestThePartsOfADisplayAtTheirBounds",

	"executor/job.maxAgain":              "executor/job.TestTheContentOfAJobIsBounded",
	"executor/job.maxKept":               "executor/job.TestFinishedJobsAreKeptUpToTheirBoundsAndKnownBeyond",
	"executor/job.maxKeptEntries":        "executor/job.TestFinishedJobsAreKeptUpToTheirBoundsAndKnownBeyond",
	"executor/job.maxLine":               "executor/job.TestALineOfARecordIsBounded",
	"executor/job.maxName":               "executor/job.TestTextsOfAJobAreShortened",
	"executor/job.maxReason":             "executor/job.TestTextsOfAJobAreShortened",
	"executor/job.maxUnfinished":         "executor/job.TestUnfinishedJobsAreBounded",
	"executor/job.maxUnfinishedOfCaller": "executor/job.TestUnfinishedJobsAreBounded",
	"executor/job.maxPatched":            "executor/job.TestTheRecordOfAPatchedJobStaysSmall",
	"executor/job.maxUnsaved":            "executor/job.TestLinesOfAJobInMemoryAreBounded",

	"executor/journal.maxListedError":    "executor/journal.TestTextsOfErrorsAreShortened",
	"executor/journal.maxLine":           "executor/journal.TestALineOfALogIsBounded",
	"executor/journal.maxOffset":         "executor/journal.TestOffsetsOfEventsAreBounded",
	"executor/journal.maxRecent":         "executor/journal.TestLogOverTheBoundOfMemoryIsReadFromDisk",
	"executor/journal.maxTombstone":      "executor/journal.TestALineOfATombstoneIsBounded",
	"executor/journal.maxTombstoneFile":  "executor/journal.TestAFileOfTombstonesIsBounded",
	"executor/journal.maxTombstoneText":  "executor/journal.TestTextsOfErrorsAreShortened",
	"executor/journal.maxUnwritten":      "executor/journal.TestEventsInMemoryAreBounded",
	"executor/journal.maxUnwrittenTotal": "executor/journal.TestEventsInMemoryAreBounded",

	"executor/jupyter.maxCommand":    "executor/jupyter.TestThousandsOfCommandsTakeNoMemory",
	"executor/jupyter.maxDropParent": "executor/jupyter.TestDropsOfOddParentsAreNotRemembered",
	"executor/jupyter.maxFrames":     "executor/jupyter.TestFramesAtTheirBoundAreHeld",
	"executor/jupyter.maxReply":      "executor/jupyter.TestAReplyIsCutPastItsBound",

	"executor/variables.maxAnswer": "executor/variables.TestALongReplyIsRefusedUndecoded",

	"relay/client.maxRemoteName": "relay/client.TestNamesOnTheVMAreBounded",
	"relay/client.maxRemotePath": "relay/client.TestNamesOnTheVMAreBounded",
	"relay/client.maxError":      "relay/client.TestTheErrorOfARunIsBounded",
	"relay/client.maxDecoded":    "relay/client.TestWhatAnAnswerBecomesIsBounded",
	"relay/client.maxItems":      "relay/client.TestAnswersWithTooManyItemsAreRefused",
	"relay/client.fewEvents":     "relay/client.TestEventsThatCanNotBeRealAreRefusedInASmallAnswer",

	"executor/files.maxDigests":     "executor/files.TestDigestsAreBounded",
	"executor/files.maxLinks":       "executor/files.TestAChainOfLinksIsRefusedPastItsBound",
	"executor/files.maxNumbered":    "executor/files.TestNumberedNamesAreSearchedUpToTheirBound",
	"executor/files.maxPath":        "executor/files.TestALongPathIsRefusedPastItsBound",
	"executor/files.maxPending":     "executor/files.TestDigestsAreBounded",
	"executor/files.maxSnapshots":   "executor/files.TestSnapshotsAreBounded",
	"executor/uploads.maxCommitted": "executor/uploads.TestCommittedUploadsAreDroppedAtTheirBound",
	"executor/uploads.maxJournal":   "executor/uploads.TestTheJournalOfManyPiecesStaysBounded",
	"executor/uploads.maxLeftovers": "executor/uploads.TestTheListOfLeftPartFilesIsBounded",
	"executor/uploads.maxPieces":    "executor/uploads.TestTheJournalOfManyPiecesStaysBounded",
	"executor/uploads.maxRecord":    "executor/uploads.TestTheRecordOfAnUploadIsBounded",
	"executor/uploads.maxTaken":     "executor/uploads.TestNumberedNamesAreTriedUpToTheirBound",
}

// notLimits have such names, but nobody outside can reach them: how often something is tried
// again, or how many workers there are.
var notLimits = []string{"executor/files.maxOpens", "executor/files.maxHashing", "executor/journal.maxFailures"}

// limited are the packages through which a request passes. All their limits are in the table.
var limited = []string{
	"executor/api", "executor/execution", "executor/files", "executor/job", "executor/journal", "executor/uploads", "shared/auth", "shared/contract", "shared/line", "shared/seal",
}

var limitName = regexp.MustCompile(`^(?:[Mm]ax|[Mm]ost|[Mm]in)[A-Z]`)

func TestEachLimitHasATestAtItsBound(t *testing.T) {
	named, tests := declared(t)
	for _, pkg := range limited {
		for name := range named {
			of, limit, _ := strings.Cut(name, ".")
			if of == pkg && limitName.MatchString(limit) && limits[name] == "" && !slices.Contains(notLimits, name) {
				t.Errorf("%s has no row in shared/arch/limits_test.go: name the test that goes to the bound and one past it", name)
			}
		}
	}
	for name, test := range limits {
		if !named[name] {
			t.Errorf("shared/arch/limits_test.go has a row for %s, which is no longer there", name)
		}
		if !tests[test] {
			t.Errorf("%s names the test %s, which is not there", name, test)
		}
	}
}

// declared returns the constants and variables of packages, and the tests, each as
// "folder.Name".
func declared(t *testing.T) (values, tests map[string]bool) {
	t.Helper()
	values, tests = map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if f.Test && strings.HasPrefix(d.Name.Name, "Test") {
					tests[f.Package+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				if f.Test || d.Tok != token.CONST && d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						values[f.Package+"."+name.Name] = true
					}
				}
			}
		}
	}
	return values, tests
}
