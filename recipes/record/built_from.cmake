# Writes a C++ file that knows what the program is built from: it is run in every
# build, and writes only what has changed. Run as a script with
#   SOURCE    the root of the tree
#   OUT       the file to write
#   VERSION   of the project
#   WITH      what CMake chose to build with, separated by |
set(COMMIT unknown)
find_program(git git)
# A tree without a repository may lie in that of another project.
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(
    COMMAND ${git} describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE code OUTPUT_VARIABLE described
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(code EQUAL 0)
    set(COMMIT ${described})
  endif()
endif()

string(REPLACE "|" "\", \"" FEATURES "${WITH}")
if(FEATURES)
  set(FEATURES "\"${FEATURES}\"")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/built_from.cc.in ${OUT} @ONLY)
