pub struct FpTree;
