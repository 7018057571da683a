// LLVM's C handles, declared without its headers: what codegen's public headers
// (emit.h, build.h) are written in, so that rooms which emit code do not see
// llvm-c. The typedefs are those of llvm-c/Types.h; C17 lets both stand.
#ifndef ATOLL_CODEGEN_HANDLES_H_
#define ATOLL_CODEGEN_HANDLES_H_

// Types and constants of one thread's modules. All of these are owned by their
// module or context; nobody frees one by itself.
typedef struct LLVMOpaqueContext *LLVMContextRef;
typedef struct LLVMOpaqueModule *LLVMModuleRef;
typedef struct LLVMOpaqueType *LLVMTypeRef;
typedef struct LLVMOpaqueValue *LLVMValueRef;
typedef struct LLVMOpaqueBasicBlock *LLVMBasicBlockRef;
typedef struct LLVMOpaqueBuilder *LLVMBuilderRef;

#endif
